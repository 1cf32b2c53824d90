"""References of nested inference are of the models' own densities, and two ways to them agree."""

import json
from argparse import Namespace
from itertools import starmap
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SMALL = "negative binomial intercepts", "BYM2, 10 × 10", "AR(1) counts, 150 steps"
SCHOOLS = "eight schools, not centred"


@pytest.fixture(autouse=True)
def _scripts_on_path(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def log_density(host, model, data, values):
    """The log density of a model at values of its sites."""
    values = {name: host.array(value) for name, value in values.items()}
    if host.NAME == "NumPyro":
        import jax
        from numpyro.infer.util import log_density

        return float(jax.jit(lambda values: log_density(model, data, {}, values)[0])(values))
    import pyro

    conditioned = pyro.poutine.condition(model, values)
    return float(pyro.poutine.trace(conditioned).get_trace(*data).log_prob_sum())


def drawn(known, case):
    """Unconstrained hyperparameters, values of all sites, and latent sites in a vector."""
    import nested_quadrature

    random = np.random.default_rng(0)
    at = 0.3 * random.normal(size=len(known.over))
    values = {name: part.value(u) for (name, part), u in zip(known.over.items(), at, strict=True)}
    given = known.given(*values.values())
    grouped = isinstance(given, nested_quadrature.Groups)
    size = 2 + len(given.x) if grouped else len(given.precision)
    x, ends = 0.3 * random.normal(size=size), [*known.places.values(), size][1:]
    for (site, first), end in zip(known.places.items(), ends, strict=True):
        values[site] = x[first:end] if case.elements.get(site) else x[first]
    return at, values, given, x


def described_density(known, at, given, x):
    """The same by what the references know, without Jacobians."""
    import nested_quadrature

    prior = 0.0
    for part, u in zip(known.over.values(), at, strict=True):
        slope = (part.value(u + 1e-5) - part.value(u - 1e-5)) / 2e-5
        prior += part.log_prior(u) - np.log(slope)
    if isinstance(given, nested_quadrature.Groups):
        wide = norm.logpdf(x[:2], scale=given.wide).sum()
        return prior + wide + nested_quadrature.of_rows(given, x[:2], x[2:]).sum()
    terms = given.likelihood.value(given.predictor @ x).sum()
    return prior + given.constant - 0.5 * x @ given.precision @ x + terms


@pytest.mark.parametrize("host_name", ["pyro", "numpyro"])
def test_references_know_the_models(host_name):
    """Up to the error of a difference quotient: constants are in the evidence."""
    import harness
    from nested_descriptions import described
    from nested_models import MODELS

    host = harness.load(host_name)
    for name in SMALL:
        case = MODELS[name]()
        known = described(name, case)
        at, values, given, x = drawn(known, case)
        with host.own_parameters(), host.doubles():
            data = tuple(map(host.array, case.data))
            found = log_density(host, case.make(host), data, values)
        assert found == pytest.approx(described_density(known, at, given, x), abs=1e-7), name


def test_draws_and_cubature_agree():
    """On binary intercepts given their spread: the evidence and an element's distribution."""
    import nested_gaussians as gaussians
    import nested_quadrature as quadrature
    from nested_descriptions import described
    from nested_models import MODELS

    name = "binary intercepts, 20 groups"
    case = MODELS[name]()
    x, group, y = case.data
    given, places = described(name, case).given(1.2), [0, 1, 2]
    arrow = quadrature.fitted(given)
    total, shapes = quadrature.integrated(given, arrow, places)
    predictor = np.column_stack([np.ones(len(y)), x, np.eye(20)[group]])
    deviations = np.r_[5.0, 5.0, np.full(20, 1.2)]
    dense = gaussians.independent(predictor, deviations, gaussians.bernoulli(y))
    found = gaussians.fitted(dense)
    assert found.elbo == pytest.approx(arrow.elbo, abs=1e-6)
    assert found.elbo < total
    draws = np.random.default_rng(0).normal(size=(20_000, 22))
    weights, moves = gaussians.log_weights(dense, found, draws)
    assert gaussians.evidences(weights)[0][0] == pytest.approx(total, abs=5e-3)
    relative = np.exp(weights - logsumexp(weights)).ravel()
    for place, shape in zip(places, shapes, strict=True):
        standardised = moves[:, place] / found.deviations[place]
        both = np.concatenate([standardised, -standardised])
        for point in (-1.5, 0.0, 1.5):
            below = gaussians.distributed(np.array([point]), 0.0, 1.0, shape)[1][0]
            assert relative[both < point].sum() == pytest.approx(below, abs=0.01)


def test_draws_and_passes_over_a_grid_agree():
    """On the AR(1) series given its hyperparameters: the evidence, and the skewness of states."""
    import nested_gaussians as gaussians
    from nested_descriptions import described
    from nested_models import MODELS

    name = "AR(1) counts, 150 steps"
    given, places = described(name, MODELS[name]()).given(0.45, 0.8), [0, 1, 76, 150]
    found = gaussians.fitted(given)
    total, shapes = given.integrated(found, places)
    draws = np.random.default_rng(0).normal(size=(4000, 151))
    weights, moves = gaussians.log_weights(given, found, draws)
    assert gaussians.evidences(weights)[0][0] == pytest.approx(total, abs=0.03)
    relative = np.exp(weights - logsumexp(weights)) * weights.size
    for place, shape in zip(places, shapes, strict=True):
        standardised = moves[:, place] / found.deviations[place]
        both = np.stack([standardised, -standardised])
        drawn = gaussians.coefficients(relative, both)
        np.testing.assert_allclose(drawn[1:4], shape[1:4], atol=0.015)
    assert shapes[1:, 3].max() < -0.01


@pytest.fixture(scope="module")
def of_schools(tmp_path_factory):
    """The reference of eight schools, in a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import nested_references

        out = tmp_path_factory.mktemp("nested") / "references.json"
        nested_references.main(["--only", SCHOOLS, "--out", str(out)])
    return out


def test_eight_schools(of_schools):
    """The evidence is that of quadrature over the spread alone."""
    from nested_models import MODELS

    found = json.loads(of_schools.read_text())[SCHOOLS]
    errors, y = MODELS[SCHOOLS]().data
    u = np.linspace(-12, 12, 1201)
    prior = np.log(2 / (5 * np.pi)) - np.log1p(np.exp(2 * u) / 25) + u
    covariances = [np.diag(errors**2 + np.exp(2 * part)) + 25 for part in u]
    terms = [multivariate_normal.logpdf(y, cov=part) for part in covariances] + prior
    assert found["log evidence"] == pytest.approx(logsumexp(terms) + np.log(u[1] - u[0]), abs=1e-4)
    assert found["method"] == "exact"
    for part in [*found["hyperparameters"].values(), *found["elements"].values()]:
        assert np.diff(part["cdf"]).min() >= 0
        assert part["cdf"][-1] == pytest.approx(1.0, abs=1e-3)


class Posterior:
    """A posterior that has a reference's own tables, the evidence moved."""

    log_evidence_error = 0.25

    def __init__(self, reference):
        self.log_evidence, self.reference = reference["log evidence"] + 0.01, reference

    def marginal(self, site):
        if site == "spread":
            (part,) = self.reference["hyperparameters"].values()
            below = lambda x: np.interp(np.log(x), part["points"], part["cdf"])  # noqa: E731
            return Namespace(cdf=below)
        elements = self.reference["elements"]
        parts = [part for title, part in elements.items() if title.startswith(site)]

        def joined(of):
            return np.stack([of(part) for part in parts], -1) if site == "z" else of(parts[0])

        def below(x):
            flat = x[..., 0] if site == "z" else x
            return joined(lambda part: np.interp(flat, part["points"], part["cdf"]))

        mean, deviation = (
            joined(lambda part, of=of: np.array(part[of])) for of in ("mean", "deviation")
        )
        return Namespace(cdf=below, mean=mean + 0.5 * deviation, standard_deviation=deviation)


def test_comparison(of_schools, tmp_path, monkeypatch):
    """Tables beside themselves are nothing off; the evidence and means are where they were put."""
    import nested

    import pyro_moments

    reference = json.loads(of_schools.read_text())[SCHOOLS]
    monkeypatch.setattr(nested.harness, "in_processes", starmap)
    monkeypatch.setattr(nested, "REFERENCES", of_schools)
    made = lambda model, *data: Posterior(reference)  # noqa: E731
    monkeypatch.setattr(pyro_moments, "nested", made, raising=False)
    out = tmp_path / "nested.json"
    nested.main(["--only", SCHOOLS, "--host", "pyro", "--check", "--out", str(out)])
    found = json.loads(out.read_text())[SCHOOLS]["pyro fit"]
    assert found["total variation"]["spread"] == pytest.approx(0.0, abs=1e-4)
    assert (found["evidence"], found["error of the evidence"]) == (0.01, 0.25)
    assert {part["mean"] for part in found["elements"].values()} == {0.5}
    assert len(found["elements"]) == 4
    assert max(part["total variation"] for part in found["elements"].values()) < 1e-3
    reference["log evidence"] += 0.1
    with pytest.raises(SystemExit, match="eight schools"):
        nested.main(["--only", SCHOOLS, "--host", "pyro", "--check"])
