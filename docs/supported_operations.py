"""Write docs/supported_operations.md from the rule tables, so that it cannot lag behind them.

python docs/supported_operations.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

import pyro_moments.rules as rules
from pyro_moments.likelihoods import EXPECTED_LOG_PROB, PREDICTIVES, is_predicted

PAGE = Path(__file__).with_name("supported_operations.md")
HEAD = """# Supported operations

Generated from the rule tables by `python docs/supported_operations.py`. Every other operation on a
random value is refused, with its name, your line, the latent sites and a remedy. `nn` modules work
when the functions that they call are listed here.
"""
TABLE = "| torch functions | meaning |\n|---|---|"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for module, served in sorted(_by_module().items()):
        title = module.rpartition(".")[2].replace("_", " ").capitalize()
        parts.append(
            f"## {title}\n\n| torch functions | what they are served as |\n|---|---|\n"
            + "\n".join(_rows(served))
        )
    parts.append("## Distributions of observed sites\n\n" + _distributions())
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _by_module() -> dict[str, dict[Callable, list[str]]]:
    """Names of the functions served, by module and rule."""
    found: dict[str, dict[Callable, list[str]]] = {}
    for function, rule in rules.RULES.items():
        if rule.__module__.endswith(".validation"):
            continue  # what distributions do to their parameters, not users
        plain = getattr(rule, "__wrapped__", rule)
        found.setdefault(rule.__module__, {}).setdefault(plain, []).append(_name(function))
    return found


def _name(function: Callable) -> str:
    name = torch.overrides.resolve_name(function) or f"torch.{function.__name__}"
    name = name.replace("torch.nn.functional.", "F.").replace("torch.Tensor.", "Tensor.")
    return name.removesuffix(".__get__")  # of a property, such as Tensor.mT


def _rows(served: dict[Callable, list[str]]) -> Iterable[str]:
    for rule, names in served.items():
        yield f"| {_spellings(names)} | {_summary(rule)} |"


def _spellings(names: Iterable[str]) -> str:
    """The spellings of one function, once each; operators of tensors as they are written."""
    return ", ".join(f"`{name}`" for name in sorted(set(names), key=lambda n: (n.count("_"), n)))


def _summary(rule: Callable) -> str:
    """First sentence of the rule's docstring, without what it serves."""
    text = " ".join((rule.__doc__ or "").strip().partition("\n\n")[0].split())
    text = re.sub(r"^Serve ", "", text).replace("``", "`")
    return text[:1].upper() + text[1:]


def _distributions() -> str:
    rows = ["| distribution | expected log-probability | `predict` |", "|---|---|---|"]
    kinds = {kind.__name__: kind for kind in (*EXPECTED_LOG_PROB, *PREDICTIVES)}
    for name, kind in sorted(kinds.items()):
        marks = (
            "yes" if served else "" for served in (kind in EXPECTED_LOG_PROB, is_predicted(kind))
        )
        rows.append(f"| {name} | {' | '.join(marks)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
