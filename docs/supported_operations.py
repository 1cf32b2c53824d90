"""Write docs/supported_operations*.md from the rule tables, so that they cannot lag behind them.

python docs/supported_operations.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import torch

import numpyro_moments.likelihoods.expected
import numpyro_moments.rules
import pyro_moments.likelihoods.expected
import pyro_moments.rules

FOLDER = Path(__file__).parent
REFUSED = """Every other operation on a
random value is refused, with its name, your line, the latent sites and a remedy."""
PYRO = f"""# Supported operations in Pyro

Generated from the rule tables by `python docs/supported_operations.py`. {REFUSED} `nn` modules work
when the functions that they call are listed here.
"""
NUMPYRO = f"""# Supported operations in NumPyro

Generated from the rule tables by `python docs/supported_operations.py`. {REFUSED} Programs are
traced by JAX first: what counts is which primitives they are made of (`jax.make_jaxpr` prints
them). Chains of elementwise primitives, and the usual spellings of softmax, logsumexp, LayerNorm
and RMSNorm, are recognised as what they compute.
"""


def pages() -> dict[str, str]:
    """Every page by the name of its file."""
    pyro, numpyro = pyro_moments, numpyro_moments
    programs = {**numpyro.rules.table.RULES, **numpyro.rules.table.PROGRAMS}
    return {
        "supported_operations.md": page(
            PYRO,
            "torch functions",
            _by_module(pyro.rules.table.RULES, _torch_name),
            pyro.likelihoods.expected,
        ),
        "supported_operations_numpyro.md": page(
            NUMPYRO, "JAX primitives", _by_module(programs, str), numpyro.likelihoods.expected
        ),
    }


def page(head: str, kind: str, served_by: dict[str, dict], likelihoods: ModuleType) -> str:
    """The page of one front end."""
    parts = [head]
    for module, served in sorted(served_by.items()):
        title = module.rpartition(".rules.")[2].replace("_", " ").replace(".", ": ").capitalize()
        title = title.replace("Table", "Refused")  # the rules that the table itself makes
        parts.append(
            f"## {title}\n\n| {kind} | what they are served as |\n|---|---|\n"
            + "\n".join(_rows(served))
        )
    parts.append("## Distributions of observed sites\n\n" + _distributions(likelihoods))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _by_module(rules: dict, name: Callable) -> dict[str, dict[Callable, list[str]]]:
    """Names of the operations served, by module and rule."""
    found: dict[str, dict[Callable, list[str]]] = {}
    for operation, rule in rules.items():
        own = str(getattr(operation, "__module__", "")).startswith("pyro_moments")
        if own or rule.__module__ == "pyro_moments.rules.validation":
            continue  # what units and distributions do to their parameters, not users
        plain = getattr(rule, "__wrapped__", rule)
        found.setdefault(plain.__module__, {}).setdefault(plain, []).append(name(operation))
    return found


def _torch_name(function: Callable) -> str:
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
    text = re.sub(r"^(Serve|Moment rule of) ", "", text).replace("``", "`")
    return text[:1].upper() + text[1:]


def _distributions(likelihoods: ModuleType) -> str:
    rows = ["| distribution | expected log-probability | `predict` |", "|---|---|---|"]
    tables = likelihoods.EXPECTED_LOG_PROB, likelihoods.PREDICTIVES
    kinds = {kind.__name__: kind for table in tables for kind in table}
    for name, kind in sorted(kinds.items()):
        both = kind in likelihoods.EXPECTED_LOG_PROB, likelihoods.is_predicted(kind)
        marks = ("yes" if served else "" for served in both)
        rows.append(f"| {name} | {' | '.join(marks)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    for file, text in pages().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
