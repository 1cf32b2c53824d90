"""Docstrings: full and alike for public names, one line for internals."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import numpyro_moments
import pyro_moments
from tests.project.counts import ROOT, SOURCE, documented, files, parsed

# Base classes that contributors and users extend; those that derive from Protocol are found.
PROTOCOLS = {"Step", "Activation", "Smooth", "PiecewiseLinear", "RuleBook", "Family", "Univariate"}
PROTOCOLS |= {"init_to_network"}  # a default that users see in the signature of a guide
MODULES = {"effects", "units"}
TEMPLATE = re.compile(r"^ *\{\w+\}$", re.MULTILINE)
ENTRY = re.compile(r"    (\*{0,2}\w+): (.*)")
# Arguments that are not the same in Pyro and NumPyro.
DIFFERENT = {
    "DVIGuide": {"model"},
    "DeterministicELBO": {"**options", "ValueError"},
    "EmpiricalBayesNormal": {"alpha", "beta", "batch_shape"},
    "MCDropoutGuide": {"model"},
    "SVI": {"optim", "loss"},
    "TridiagonalGuide": {"model"},
    "VBPGuide": {"model"},
    "linear_response": {"params"},
    "moment_rule": {"takes"},
    "predict": {"guide"},
    "smaller_network": {"net", "ValueError"},
    "propagate": {"*inputs", "fn"},
}


def public() -> set[tuple[str, str]]:
    """Files and qualified names of what both packages export, with the methods of classes."""
    fronts = pyro_moments, numpyro_moments
    packages = [part for front in fronts for part in (front, front.units, front.effects)]
    exported = [getattr(package, name) for package in packages for name in package.__all__]
    owners = [base for item in exported if inspect.isclass(item) for base in item.__mro__]
    return {place for item in [*exported, *owners] if (place := _place(item))}


def _place(item) -> tuple[str, str] | None:
    if inspect.ismodule(item):
        return None
    try:
        file = inspect.getsourcefile(inspect.unwrap(item)) or ""
    except TypeError:  # of a built-in class
        return None
    return str(Path(file).resolve()), item.__qualname__  # moment_guides may be a link to guides/


def _is_public(file: str, name: str, exported: set[tuple[str, str]]) -> bool:
    owner = name.split(".")[0]
    return owner in PROTOCOLS or not exported.isdisjoint({(file, owner), (file, name)})


def _protocols(tree: ast.AST) -> set[str]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {
        node.name
        for node in classes
        if any(getattr(base, "id", "") == "Protocol" for base in node.bases)
    }


def test_internals_list_no_arguments():
    exported, internal = public(), []
    for file in files(ROOT, SOURCE):
        tree = parsed(file)
        own = _protocols(tree)
        internal += [
            f"{file.relative_to(ROOT)}: {name}"
            for name, _, docstring in documented(tree)
            if "Args:" in docstring.value.value
            and name.split(".")[0] not in own
            and not _is_public(str(file), name, exported)
        ]
    assert internal == []


def test_docstrings_have_no_templates():
    templates = [
        str(file.relative_to(ROOT))
        for file in files(ROOT, SOURCE)
        for _, _, docstring in documented(parsed(file))
        if TEMPLATE.search(docstring.value.value)
    ]
    assert templates == []


def _entries(item: object) -> dict[str, str]:
    """The texts of arguments and errors in a docstring, in Pyro's words."""
    texts: dict[str, str] = {}
    name = None
    for line in inspect.getdoc(item).replace("NumPyro", "Pyro").split("\n"):
        entry = ENTRY.match(line)
        name = entry[1] if entry else name if line.startswith(" " * 8) else None
        if name:
            texts[name] = f"{texts.get(name, '')} {entry[2] if entry else line.strip()}"
    return texts


@pytest.mark.parametrize(
    "name",
    sorted({*pyro_moments.__all__} & {*numpyro_moments.__all__} - {"MomentTensor", *MODULES}),
)
def test_frameworks_document_alike(name):
    pyro, numpyro = _entries(getattr(pyro_moments, name)), _entries(getattr(numpyro_moments, name))
    differences = {entry for entry in pyro.keys() & numpyro.keys() if pyro[entry] != numpyro[entry]}
    assert differences <= DIFFERENT.get(name, set())
