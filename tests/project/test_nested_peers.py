"""What stands beside nested inference is what it is called, and compares with the references."""

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SCHOOLS = "eight schools, not centred"


@pytest.fixture(autouse=True)
def _scripts_on_path(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def at_the_mode(given):
    """Laplace's log density of a model in NumPy, and the mode, by plain Newton steps."""
    mean = np.zeros(len(given.precision))
    for _ in range(50):
        eta = given.predictor @ mean
        curvature = given.likelihood.curvature(eta)[:, None] * given.predictor
        curvature = given.precision + given.predictor.T @ curvature
        slope = given.predictor.T @ given.likelihood.slope(eta) - given.precision @ mean
        mean = mean + np.linalg.solve(curvature, slope)
    joint = given.likelihood.value(given.predictor @ mean).sum() + given.constant
    joint -= 0.5 * mean @ given.precision @ mean
    constant = len(mean) * np.log(2 * np.pi) - np.linalg.slogdet(curvature)[1]
    return joint + 0.5 * constant, mean


def test_laplace_is_that_of_plain_newton_steps():
    import harness
    import nested_descriptions as descriptions
    import nested_models
    import nested_peers_laplace as laplace

    from numpyro_moments.evaluation.arguments import Precision
    from numpyro_moments.response.conditional import NestedModel

    host, case = harness.load("numpyro"), nested_models.walk_of_counts(12)
    known = descriptions.walk_of_counts(*case.data)
    points = np.array([[-2.0], [-1.0], [0.3]])
    with host.doubles():
        data = tuple(map(host.array, case.data))
        model = NestedModel(case.make(host), data, {}, Precision(True))
        given = model.given(case.over, ("first", "moves"), ("obs",))
        found = laplace.AtMode(given, points[0]).at(points, None, -np.inf)
    for place, (u,) in enumerate(points):
        expected, mean = at_the_mode(known.given(np.exp(u)))
        assert found.elbo[place] == pytest.approx(expected, abs=1e-6)
        np.testing.assert_allclose(found.mean[place], mean, atol=1e-4)
        assert found.log_prior[place] == pytest.approx(known.over["step"].log_prior(u), abs=1e-9)


def test_the_library_without_its_correction_is_itself_again_afterwards():
    import nested_peers_laplace as laplace

    from moment_inference.nested import inference

    before = inference.corrected_field, inference.Conditioning
    with laplace.variant(laplace=True):
        assert inference.corrected_field is laplace.uncorrected
        assert inference.Conditioning is laplace.AtMode
    assert before == (inference.corrected_field, inference.Conditioning)


def test_the_density_of_a_reference_is_nothing_off():
    import nested_peers
    import nested_peers_grid as grid
    import nested_references
    from nested_descriptions import described
    from nested_models import MODELS

    case = MODELS[SCHOOLS]()
    axes = grid.axes(nested_peers.reference(SCHOOLS))
    known = described(SCHOOLS, case)
    logs = np.array([nested_references.at(known, point)[0] for point in grid.points(axes)])
    found = grid.errors(SCHOOLS, case, axes, logs + 0.25)
    assert found["total variation"]["spread"] < 1e-4
    assert (found["evidence"], found["failed points"]) == (pytest.approx(0.25, abs=1e-3), 0)
    logs[:20] = np.nan
    assert grid.errors(SCHOOLS, case, axes, logs)["failed points"] == 20


def test_failures_are_results(monkeypatch, tmp_path):
    import nested_peers

    sent = []
    monkeypatch.setattr(nested_peers.resource, "setrlimit", lambda what, limits: None)
    monkeypatch.setitem(nested_peers.TASKS, "INLA", "nested_peers.reference")
    nested_peers.answer(Namespace(send=sent.append), "INLA", "no model", 1)
    (found,) = sent
    assert found == {"INLA": {"failure": "KeyError: 'no model'"}}
    out = tmp_path / "peers.json"
    nested_peers.report(out, SCHOOLS, {"nested": {"evidence": 0.5}})
    nested_peers.report(out, SCHOOLS, found)
    assert json.loads(out.read_text()) == {SCHOOLS: {"nested": {"evidence": 0.5}} | found}


class Process:
    """A process that its system has ended."""

    exitcode = -9

    def __init__(self, target, args):
        self.sender = args[0]

    def start(self):
        for part in self.sender.parts:
            self.sender.send(part)

    def join(self):
        pass


@pytest.mark.parametrize("parts", [(), ({"evidence": 1.0}, {"evidence": 2.0})])
def test_what_was_found_before_the_end_counts(monkeypatch, parts):
    import multiprocessing

    import nested_peers

    receiver, sender = multiprocessing.Pipe(duplex=False)
    own = Namespace(send=sender.send, close=sender.close, parts=[{"INLA": part} for part in parts])
    context = Namespace(Pipe=lambda duplex: (receiver, own), Process=Process)
    monkeypatch.setattr(nested_peers.multiprocessing, "get_context", lambda kind: context)
    found = nested_peers.found("INLA", SCHOOLS, 5)["INLA"]
    if parts:
        assert found == {"evidence": 2.0, "seconds": {"more than": 5}}
    else:
        assert found == {"failure": "no result after 5 s"}
