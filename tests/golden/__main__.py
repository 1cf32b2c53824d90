"""Dump what the library computes, to compare it before and after a change of its structure.

``agree`` compares values and gradients in both frameworks.

    python -m tests.golden dump before.json.gz --framework pyro
    python -m tests.golden compare before.json.gz after.json.gz
    python -m tests.golden agree --programs 100

To dump an older commit, put its checkout first on PYTHONPATH and run this file's newest version.
"""

import argparse
import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

from tests.golden import losses, moments
from tests.golden.recording import difference_of_numbers

SHOWN = 20


def main() -> int:
    """Dump, or compare: 1 if anything differs."""
    options = _options()
    if options.command == "compare":
        return _compared(_read(options.before), _read(options.after), options.tolerance)
    if options.command == "agree":
        return _agreed(options.programs)
    entries = {
        **moments.entries(options.framework, options.programs),
        **losses.entries(options.framework),
    }
    with gzip.open(options.file, "wt") as file:
        json.dump(entries, file)
    print(len(entries), "entries")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    dump = commands.add_parser("dump")
    dump.add_argument("file", type=Path)
    dump.add_argument("--framework", choices=("pyro", "numpyro"), required=True)
    dump.add_argument("--programs", type=int, default=1000, help="random programs")
    agree = commands.add_parser("agree")
    agree.add_argument("--programs", type=int, default=100, help="random programs")
    compare = commands.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--tolerance", type=float, default=1e-12, help="relative")
    return parser.parse_args()


def _read(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        return json.load(file)


def _compared(before: dict[str, Any], after: dict[str, Any], tolerance: float) -> int:
    differences = [
        f"{name}: {reason}"
        for name in sorted(before.keys() | after.keys())
        if (reason := _difference(before.get(name), after.get(name), tolerance))
    ]
    print("\n".join(differences[:SHOWN]))
    print(f"{len(differences)} of {len(before)} entries differ")
    return int(bool(differences))


def _agreed(programs: int) -> int:
    """Print which programs differ between the frameworks: 1 if any does."""
    from tests.golden import agreement

    for framework in ("pyro", "numpyro"):
        moments.in_double_precision(framework)
    names = [name for of_kind in agreement.names(programs).values() for name in of_kind]
    differences = [f"{name}: {reason}" for name in names if (reason := agreement.difference(name))]
    print("\n".join(differences))
    print(f"{len(differences)} of {len(names)} programs differ")
    return int(bool(differences))


def _difference(before: Any, after: Any, tolerance: float) -> str:
    """What differs between two entries; nothing if they agree."""
    if before is None or after is None:
        return "only in one"
    if before["texts"] != after["texts"]:
        return f"\n  {before['texts']}\n  {after['texts']}"
    return difference_of_numbers(before["numbers"], after["numbers"], tolerance)


if __name__ == "__main__":
    sys.exit(main())
