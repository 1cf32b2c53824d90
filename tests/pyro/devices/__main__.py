"""Run what is named on both devices, and mutants on the second: ``python -m tests.pyro.devices``.

It prints, as JSON, the results of each run by device, or the error; without names, of all. Uses
run with each device as the default one. ``golden`` is the name of all golden losses.
"""

import json
import sys
from collections.abc import Collection
from typing import Any

from tests.pyro.devices.backend import HERE
from tests.pyro.devices.default_device import USES, used
from tests.pyro.devices.mutants import MUTANTS, mutated
from tests.pyro.devices.programs import RUNS, results


def outcome(run: str, device: Any) -> list[Any] | str:
    try:
        return used(run, device) if run in USES else results(run, device)
    except Exception as error:  # the test says what it is
        return f"{type(error).__name__}: {error}"


def main(names: Collection[str]) -> None:
    found: dict[str, Any] = {"runs": {}, "mutants": {}}
    if "golden" in names:
        from tests.pyro.devices import golden  # takes seconds

        found["golden"] = golden.faults(golden.chosen())
    for run in (run for run in [*RUNS, *USES] if run in names):
        found["runs"][run] = [outcome(run, "cpu"), outcome(run, HERE)]
    for name, mutant in ((name, mutant) for name, mutant in MUTANTS.items() if name in names):
        with mutated(mutant):
            found["mutants"][name] = [outcome(mutant.run, "cpu"), outcome(mutant.run, HERE)]
    print(json.dumps(found))


main(sys.argv[1:] or [*RUNS, *USES, *MUTANTS, "golden"])
