"""Compiled programs are kept by what models compute: a second fit does not compile."""

import functools
import gc
import types
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_moments
from numpyro_moments.evaluation import programs
from numpyro_moments.evaluation.arguments import in_jax
from numpyro_moments.evaluation.fingerprint import Incomparable, fingerprint
from numpyro_moments.evaluation.programs import Programs

SCALE = 1.0
SETTINGS = types.ModuleType("settings_of_the_user")
SETTINGS.scale = 1.0
X = np.linspace(-1.0, 1.0, 12)
Y = X + 0.1 * np.cos(5 * X)


def helper(w):
    return SCALE * w


def model(x, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(helper(w) * x, 0.3), obs=y)


@pytest.fixture
def compilations(monkeypatch):
    """The names of the programs that are compiled, and none that is kept from other tests."""
    monkeypatch.setattr(programs, "_KEPT", programs.OrderedDict())
    names, recent = [], programs._recent

    def seen(kept, key, most, make):
        if most == programs.EACH and key not in kept:
            names.append(key[0])
        return recent(kept, key, most, make)

    monkeypatch.setattr(programs, "_recent", seen)
    return names


def location(model, x=X, y=Y, **options):
    guide = numpyro_moments.DVIGuide()
    result = numpyro_moments.fit(model, guide, x, y, method="newton", by_draws=False, **options)
    response = numpyro_moments.linear_response(model, guide, x, y, params=result.params)
    return float(result.params["w_auto_loc"]), float(response.standard_deviation("w"))


def exact(x=X, y=Y, scale=1.0, prior=1.0):
    precision = prior**-2 + scale**2 * (x @ x) / 0.09
    return scale * (x @ y) / 0.09 / precision, precision**-0.5


def test_other_data_of_the_same_shapes_are_not_compiled_for(compilations, by_numpy):
    np.testing.assert_allclose(location(model), exact(), rtol=1e-4)
    assert compilations
    compilations.clear()
    other = np.roll(X, 3) ** 2, 2 * Y
    np.testing.assert_allclose(location(model, *other), exact(*other), rtol=1e-4)
    assert not compilations
    np.testing.assert_allclose(location(model, X[:7], Y[:7]), exact(X[:7], Y[:7]), rtol=1e-4)
    assert compilations


@pytest.mark.parametrize("size", [None, 6])
def test_steps_of_adam_and_the_check_by_draws_are_kept(compilations, size):
    options = {"steps": 300, "learning_rate": 0.05, "seed": 1, "batch_size": size}
    fit = numpyro_moments.fit
    first = fit(model, numpyro_moments.DVIGuide(), X, Y, **options)
    assert compilations
    compilations.clear()
    second, again = (fit(model, numpyro_moments.DVIGuide(), X, y, **options) for y in (2 * Y, Y))
    assert not compilations
    assert again.losses == first.losses
    assert second.params["w_auto_loc"] == pytest.approx(exact(y=2 * Y)[0], abs=0.05)


def test_a_changed_global_is_seen(compilations, monkeypatch, by_numpy):
    location(model)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    np.testing.assert_allclose(location(model), exact(scale=2.0), rtol=1e-4)


def of_closure(scales):
    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0.0, scales["prior"][0]))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(w * x, 0.3), obs=y)

    return model


def test_a_changed_list_in_a_closure_is_seen(compilations, by_numpy):
    scales = {"prior": [1.0]}
    model = of_closure(scales)
    location(model)
    scales["prior"][0] = 0.1
    np.testing.assert_allclose(location(model), exact(prior=0.1), rtol=1e-4)
    compilations.clear()
    np.testing.assert_allclose(location(of_closure({"prior": [1.0]})), exact(), rtol=1e-4)
    assert not compilations  # another function that computes the same


CELL = """
def model(x, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, {prior}))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(w * x, 0.3), obs=y)
"""


def test_a_model_that_a_notebook_defines_again_is_seen(compilations, by_numpy):
    for prior in (1.0, 0.1):
        cell = {"numpyro": numpyro, "dist": dist, "__name__": "__main__"}
        exec(compile(CELL.format(prior=prior), "<cell>", "exec"), cell)
        np.testing.assert_allclose(location(cell["model"]), exact(prior=prior), rtol=1e-4)


def test_handlers_around_the_model_and_the_fit_are_seen(compilations, by_numpy):
    location(model)
    compilations.clear()
    location(numpyro.handlers.scale(model, scale=0.5))
    assert compilations
    compilations.clear()
    with numpyro.handlers.scale(scale=0.5):
        location(model)
    assert compilations


def test_nothing_keeps_a_model_alive(compilations):
    model = of_closure({"prior": [1.0]})
    found = weakref.ref(model)
    location(model)
    del model
    gc.collect()
    assert found() is None


def test_at_most_so_many_models_are_kept(monkeypatch):
    monkeypatch.setattr(programs, "_KEPT", programs.OrderedDict())
    monkeypatch.setattr(programs, "MOST", 4)
    for scale in range(programs.MOST + 3):
        Programs(float(scale)).run("twice", lambda x: 2 * x, jnp.ones(2))
    assert len(programs._KEPT) == programs.MOST


class Noisy:
    """A callable with a state."""

    scale = 1.0

    def __init__(self, scale):
        self.own = np.full(3, scale)

    def __call__(self, x):
        return self.own * x + self.scale


@jax.jit
def compiled(x):
    return SCALE * x


def reads_module(x):
    return SETTINGS.scale * x


def draws(x):
    return x + np.random.normal()  # noqa: NPY002


def imports(x):
    import settings

    return settings.scale * x


def opens(x):
    return x * float(open("scale").read())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x + 1, lambda x: x + 1.0),
        (lambda x, a=1: x + a, lambda x, a=2: x + a),
        (lambda x, *, a=[1]: x, lambda x, *, a=[2]: x),
        (functools.partial(helper, 1.0), functools.partial(helper, -1.0)),
        (Noisy(1.0), Noisy(2.0)),
        (Noisy(1.0).__call__, Noisy(2.0).__call__),
        (jnp.zeros(2), jnp.ones(2)),
        (np.zeros(2), jnp.zeros(2)),
        (0.0, -0.0),
        (True, 1),
        (dist.Normal(0.0, 1.0), dist.Normal(0.0, 2.0)),
        (
            numpyro.handlers.condition(model, {"w": 1.0}),
            numpyro.handlers.condition(model, {"w": 2.0}),
        ),
        (numpyro.optim.Adam(0.1), numpyro.optim.Adam(0.2)),
        (numpyro_moments.DVIGuide(), numpyro_moments.DVIGuide(init_scale=0.1)),
        (numpyro_moments.DVIGuide(), numpyro.infer.autoguide.AutoNormal(model)),
    ],
)
def test_values_are_told_apart(one, other):
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)
    hash(fingerprint(one))


@pytest.mark.parametrize("function", [helper, compiled, lambda x: helper(x), [{"f": (helper,)}]])
def test_globals_of_what_is_called_are_read(function, monkeypatch):
    before = fingerprint(function)
    assert fingerprint(function) == before
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert fingerprint(function) != before


def test_a_number_of_a_module_and_of_a_class_are_read(monkeypatch):
    before = fingerprint(reads_module), fingerprint(Noisy(1.0))
    monkeypatch.setattr(SETTINGS, "scale", 2.0)
    monkeypatch.setattr(Noisy, "scale", 2.0)
    assert fingerprint(reads_module) != before[0]
    assert fingerprint(Noisy(1.0)) != before[1]


@pytest.mark.parametrize(
    "value", [draws, imports, opens, iter([1]), np.random.default_rng(0), (i for i in X), object()]
)
def test_what_cannot_be_compared(value):
    with pytest.raises(Incomparable):
        fingerprint(value)
    assert Programs(value)._own is not Programs(value)._own


def test_a_warning_of_a_kept_program_is_given_again():
    def warns(x):
        import warnings

        warnings.warn("approximate", UserWarning, stacklevel=2)
        return x

    for _ in range(2):
        with pytest.warns(UserWarning, match="approximate"):
            Programs("warning").run("warns", warns, jnp.ones(2))


def of_selected_rows(x, shown, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    chosen = x[shown]
    with numpyro.plate("data", len(chosen)):
        numpyro.sample("y", dist.Normal(w * chosen, 0.3), obs=None if y is None else y[shown])


def test_data_are_constants_where_a_model_looks_at_their_numbers(by_numpy):
    for shown in (X > 0, X < 0.5):
        guide = numpyro_moments.DVIGuide()
        data = X, shown, Y
        fit = numpyro_moments.fit(of_selected_rows, guide, *data, method="newton", by_draws=False)
        w, deviation = exact(X[shown], Y[shown])
        assert fit.params["w_auto_loc"] == pytest.approx(w, rel=1e-4)
        response = numpyro_moments.linear_response(of_selected_rows, fit, *data)
        assert response.standard_deviation("w") == pytest.approx(deviation, rel=1e-3)
        assert numpyro_moments.loo(of_selected_rows, fit, *data).n_data_points == shown.sum()


def test_draws_of_other_data_are_not_compiled_for(compilations, by_numpy):
    for y in (Y, 2 * Y):
        compilations.clear()
        guide = numpyro_moments.DVIGuide()
        result = numpyro_moments.fit(model, guide, X, y, method="newton", by_draws=False)
        found = numpyro_moments.to_inference_data(model, result, X, y, num_samples=200)
        w, deviation = exact(y=y)
        draws = found.posterior["w"].values
        assert draws.mean() == pytest.approx(w, abs=5 * deviation / 200**0.5)
        law = dist.Normal(draws[..., None] * X, 0.3)
        np.testing.assert_allclose(found.log_likelihood["y"], law.log_prob(y), atol=1e-3)
    assert not compilations


def test_arrays_of_numpy_are_in_the_current_precision():
    """JAX keeps doubles of an array that a function of its closure had in double precision."""
    doubles = np.arange(8.0)
    with jax.enable_x64(True):
        jax.closure_convert(lambda x: (x * doubles).sum(), 1.0)[0](1.0)
    assert jax.jit(jnp.square).lower(in_jax(doubles)).compile()(in_jax(doubles))[3] == 9.0
