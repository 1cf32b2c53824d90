"""Run the wheel with every Python and the oldest and newest dependencies that are allowed.

``python -m tests.project.matrix 3.11 3.12 /opt/python3.13/bin/python``: a Python is a version,
which is looked for on PATH, or a path. Each cell of the matrix is an empty environment, without
the checkout: there the README's first block runs, and ``matrix_program.py``.

torch is several GB where the index has its CUDA build only. There the cell runs NumPyro alone,
and says so; ``MATRIX_CUDA=1`` installs it all the same.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.project.distributions import ROOT, copy_of_source, run, wheel_by_pip

SETS = {"oldest": ["-c", ROOT / "constraints-oldest.txt"], "newest": []}
FEWEST = 2  # Pythons
BLOCKS = {"numpyro": 1, "pyro": 0}  # of the README, by framework
SHOWN = "jax numpyro torch pyro-ppl numpy scipy arviz".split()
ISOLATED = ("-I", "-W", "ignore")


@dataclass
class Cell:
    """One Python with one set of dependencies, and what became of it."""

    python: str
    version: str
    name: str  # of the set
    frameworks: list[str] = field(default_factory=lambda: ["numpyro"])
    installed: str = ""
    notes: list[str] = field(default_factory=list)
    error: str = ""

    def __str__(self) -> str:
        """Show the cell as a row."""
        state = "failed" if self.error else "passed"
        told = "".join(f"\n    {note}" for note in self.notes)
        title = f"Python {self.version}, {self.name}: {' and '.join(self.frameworks)} {state}"
        return f"{title}\n    {self.installed}{told}"


def version_of(python: str) -> str:
    """The version of a Python that starts; nothing of one that does not."""
    ask = "import platform; print(platform.python_version())"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def interpreters(names: list[str]) -> tuple[dict[str, str], list[str]]:
    """The Pythons that exist, as version by path, and the names of those that do not."""
    found, missing = {}, []
    for name in names:
        is_version = re.fullmatch(r"\d+\.\d+", name)
        path = shutil.which(f"python{name}" if is_version else name) or ""
        version = version_of(path) if path else ""
        if version:
            found[path] = version
        else:
            missing.append(name)
    return found, missing


def is_small(python: Path, options: list, folder: Path) -> bool:
    """Whether pip would install torch without the libraries of CUDA."""
    report = folder / "report.json"
    dry = ["-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--report", report]
    (torch,) = (line for line in requirements("pyro") if line.startswith("torch"))
    run(python, *dry, *options, torch, cwd=folder)
    names = [item["metadata"]["name"] for item in json.loads(report.read_text())["install"]]
    return not any(name.startswith(("nvidia", "cuda")) for name in names)


def requirements(extra: str = "") -> list[str]:
    """What pyproject.toml asks for."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["optional-dependencies"][extra] if extra else project["dependencies"]


def torch_options(python: Path, options: list, folder: Path) -> list | None:
    """What makes pip take a torch that can be had: the newest, else the tested one, or none."""
    if "MATRIX_CUDA" in os.environ:
        return []
    tested = folder / "torch.txt"
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested.write_text("".join(f"{pin}\n" for pin in pins if pin.startswith("torch==")))
    for further in ([], ["-c", tested]):
        if is_small(python, [*options, *further], folder):
            return further
    return None


def run_cell(cell: Cell, wheel: Path, folder: Path) -> None:
    """Install the wheel in an empty environment, and run what the matrix runs."""
    run(cell.python, "-m", "venv", folder / "env", cwd=folder)
    python, options = folder / "env" / "bin" / "python", SETS[cell.name]
    run(python, "-m", "pip", "install", "-q", "--upgrade", "pip", cwd=folder)
    further = torch_options(python, options, folder)
    if further is None:
        cell.notes.append(
            "Pyro was not run: this index has torch only as a CUDA build of several GB"
        )
    else:
        cell.frameworks.append("pyro")
        if further:
            cell.notes.append("torch is the tested one: the newest is a CUDA build of several GB")
    extras = ",".join([*cell.frameworks, "diagnostics"])
    install = ["-m", "pip", "install", "-q", *options, *(further or []), f"{wheel}[{extras}]"]
    run(python, *install, cwd=folder)
    cell.installed = versions(python, folder)
    program = shutil.copy(ROOT / "tests" / "project" / "matrix_program.py", folder)
    for framework in cell.frameworks:
        run(python, *ISOLATED, "-c", literal_line(framework), cwd=folder, OMP_NUM_THREADS="1")
        run(python, *ISOLATED, program, framework, cwd=folder, OMP_NUM_THREADS="1")


def versions(python: Path, folder: Path) -> str:
    """The versions that matter, as installed."""
    listed = json.loads(run(python, "-m", "pip", "list", "--format", "json", cwd=folder))
    by_name = {item["name"].lower().replace("_", "-"): item["version"] for item in listed}
    return ", ".join(f"{name} {by_name[name]}" for name in SHOWN if name in by_name)


def literal_line(framework: str) -> str:
    """The README's first block in a framework."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)[BLOCKS[framework]]


def cells_of(found: dict[str, str], wheel: Path) -> list[Cell]:
    """Run all cells, one after the other; report each as it ends."""
    cells = []
    for python, version in found.items():
        for name in SETS:
            cells.append(Cell(python, version, name))
            with tempfile.TemporaryDirectory() as folder:
                try:
                    run_cell(cells[-1], wheel, Path(folder))
                except RuntimeError as error:
                    cells[-1].error = str(error)
            print(cells[-1], cells[-1].error, sep="\n", flush=True)
    return cells


def main(names: list[str]) -> int:
    """Run the matrix; return how many things went wrong."""
    found, missing = interpreters(names)
    for name in missing:
        print(f"Python {name} is missing: put it on PATH as python{name}, or give its path")
    if len(found) < FEWEST:
        print(f"{len(found)} of {len(names)} Pythons found; a matrix takes at least {FEWEST}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source", Path(folder) / "wheel"
        made.mkdir()
        cells = cells_of(found, wheel_by_pip(copy_of_source(source), made))
    failed = sum(bool(cell.error) for cell in cells)
    print(f"{len(cells) - failed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
