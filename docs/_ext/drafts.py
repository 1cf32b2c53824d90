"""A draft of the cells: a tenth of the steps, and JAX's small programs by NumPy.

Compiling takes most of the time of a short training, and what it prints is the same.
"""

from __future__ import annotations

import ast
import sys
from contextlib import AbstractContextManager, nullcontext

COUNTS = {"steps", "epochs", "num_samples", "num_warmup", "simulations", "warmup_steps"}
FEWEST = 5  # below which a count stays as it is


class Briefly(ast.NodeTransformer):
    """A tenth of the steps, draws, epochs and simulations that are written as numbers."""

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        """An argument of a call."""
        self.generic_visit(node)
        return ast.keyword(node.arg, _fewer(node.value) if node.arg in COUNTS else node.value)

    def visit_Dict(self, node: ast.Dict) -> ast.Dict:
        """Options that several calls share."""
        self.generic_visit(node)
        names = [getattr(key, "value", None) for key in node.keys]
        values = [
            _fewer(value) if name in COUNTS else value
            for name, value in zip(names, node.values, strict=True)
        ]
        return ast.Dict(node.keys, values)

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        """A number with a name."""
        self.generic_visit(node)
        if getattr(node.targets[0], "id", None) in COUNTS:
            node.value = _fewer(node.value)
        return node


def _fewer(value: ast.expr) -> ast.expr:
    match value:
        case ast.Constant(int(count)):
            fewer = max(count // 10, min(count, FEWEST))
            return ast.copy_location(ast.Constant(fewer), value)
    return value


def by_numpy() -> AbstractContextManager:
    """While it is entered, JAX compiles no small programs, if it is imported at all."""
    if "jax" not in sys.modules:
        return nullcontext()
    from tests.checks import small_programs

    return small_programs.by_numpy()
