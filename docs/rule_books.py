"""Write docs/rule_books.md from the books and the operations that ask them.

python docs/rule_books.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import pyro_moments.rules  # noqa: F401  (operations register their seats)
from moment_calculus.functions.table import ACTIVATIONS, activation
from moment_calculus.rulebooks import RULEBOOKS
from moment_calculus.values.propagation import COVARIANCES, RuleBook, replaceable_operations

FILE = Path(__file__).parent / "rule_books.md"
HEAD = """# Rule books

Generated from the books by `python docs/rule_books.py`. A book is chosen by `rules=` of the
objectives, of `predict`, `propagate` and `moment_accuracy`; one rule of it is replaced by
`EXACT.replacing(sigmoid=...)`, see [Contributing](contributing.md). What a book has no rule for
keeps the exact one. Every spelling of a function follows its rule, in both frameworks: `relu(h)`,
`h * (h > 0)`, `where(h > 0, h, 0)` and `clip(h, min=0)` are one function.
"""
OF_FUNCTIONS = """## Functions

Mean and standard deviation of $f(x)$ for $x \\sim N(0.5, 1)$ over the exact ones. A dash stands
for the exact moments. Covariances of pairs: `dvi` has those of Wu et al. (2019) for relu, leaky
relu and the step, and other books have those of the linear parts.
"""
OF_OPERATIONS = """## Operations

What the book puts in the place of an operation's own rule, in the words of that rule.
"""
PARAMETERS = {
    "clamp": (0.0, 1.0),
    "threshold": (0.0, 0.5),
    "hardshrink": (0.3,),
    "softshrink": (0.3,),
}
MEAN, VARIANCE = torch.tensor([0.5]).double(), torch.tensor([1.0]).double()


def page() -> str:
    """The page."""
    books = [book for name, book in RULEBOOKS.items() if name != "exact"]
    functions = {name: [_ratio(book, name) for book in books] for name in _replaced(books)}
    operations = {
        name: [_words(book.operations.get(name)) for book in books]
        for name in replaceable_operations()
    }
    modes = {f"`{mode}`": [_has(book, mode) for book in books] for mode in COVARIANCES}
    names = [f"`{book.name}`" for book in books]
    return "\n".join(
        [
            HEAD,
            OF_FUNCTIONS,
            *_table(names, functions),
            OF_OPERATIONS,
            *_table(names, operations),
            "## Modes of covariance\n",
            *_table(names, modes),
        ]
    )


def _table(heads: list[str], rows: dict[str, list[str]]) -> list[str]:
    lines = [
        ["", *heads],
        ["---"] * (len(heads) + 1),
        *([name, *row] for name, row in rows.items()),
    ]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def _replaced(books: list[RuleBook]) -> list[str]:
    """Names of functions of which a book changes the moments."""
    return [
        name
        for name in sorted(ACTIVATIONS)
        if name != "power" and any(_ratio(book, name) != "–" for book in books)
    ]


def _ratio(book: RuleBook, name: str) -> str:
    function = activation(name, *PARAMETERS.get(name, ()))
    rule = book.rule_for(function)
    (mean, variance), (exact, spread) = (f.moments(MEAN, VARIANCE) for f in (rule, function))
    ratios = (mean / exact).item(), (variance / spread).item() ** 0.5
    text = "{:.2f}, {:.2f}".format(*ratios)
    return "–" if max(abs(ratio - 1) for ratio in ratios) < 1e-9 else text


def _words(rule: Any) -> str:
    """The first sentence of a rule's docstring, or of its object's."""
    if rule is None:
        return "–"
    owner = getattr(rule, "__self__", rule)
    text = owner.__doc__.strip().split("\n\n")[0].replace("\n", " ").rstrip(".")
    return " ".join(text.split()).removeprefix("Return ").replace("|", "\\|")


def _has(book: RuleBook, mode: str) -> str:
    return "yes" if mode in book.covariances else "refused"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
