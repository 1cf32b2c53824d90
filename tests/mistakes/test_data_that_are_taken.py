"""Arrays of other libraries, lists, frames and odd data that are right."""

import numpy as np
import pandas as pd
import pytest
import torch

from tests.checks.marks import IN_PYRO
from tests.mistakes.models import (
    IN,
    LABELS,
    OUT,
    QUICK,
    ROWS,
    binary,
    by_name,
    changed,
    counts,
    data,
    fitted,
    masked,
    trained,
)
from tests.response.models import fresh

FRAME = pd.DataFrame(IN, columns=["a", "b", "c"]).assign(y=OUT)
SEEN = ~np.isin(np.arange(ROWS), [3, 7])
KINDS = {
    "arrays of NumPy": (IN, OUT),
    "doubles of NumPy": (IN.astype(float), OUT.astype(float)),
    "lists": (IN.tolist(), OUT.tolist()),
    "a frame and a column": (FRAME[["a", "b", "c"]], FRAME["y"]),
    "tensors of torch": (torch.tensor(IN), torch.tensor(OUT)),
    "doubles of torch": (torch.tensor(IN).double(), torch.tensor(OUT).double()),
    "a column of objects": (IN, OUT.astype(object)),
}


def fit(host, model, *parts, **options):
    """A quick fit of data as they are."""
    return host.package.fit(model, host.package.DVIGuide(), *parts, **{**QUICK, **options})


@pytest.mark.parametrize("name", KINDS)
def test_data_of_other_libraries_are_taken(host, name):
    found = fit(host, host.regression, *KINDS[name], steps=1)
    expected = fit(host, host.regression, *data(host), steps=1)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-6)


def test_doubles_stay_where_the_model_draws_doubles():
    """A latent site in double precision, by itself or by the data, is not a mistake."""
    host, doubles = fresh("pyro"), [torch.tensor(part).double() for part in (IN, OUT)]

    def model(x, y=None):
        prior = host.dist.Normal(x.new_zeros(3), 1.0).to_event(1)
        weight = host.language.sample("weight", prior)
        return host.observe(x, host.dist.Normal(x @ weight, 0.5), y)

    fitted_in_doubles = fit(host, model, *doubles, steps=1)
    assert {part.dtype for part in fitted_in_doubles.params.values()} == {torch.float64}


def test_other_verbs_take_them_too(host):
    x, y, model = IN.tolist(), pd.Series(OUT), host.regression
    prediction = host.package.predict(model, trained(host.name), x)["obs"]
    assert prediction.mean.shape == (ROWS,)
    expected = prediction.log_prob(host.array(OUT))
    np.testing.assert_allclose(prediction.log_prob(OUT), expected, rtol=1e-6)
    response = host.package.linear_response(model, trained(host.name), x, y)
    assert response.standard_deviation("weight").shape == (3,)


def test_doubles_of_numpy_stay_doubles_where_asked(host):
    found = fit(host, host.regression, IN + 1e-9, OUT.astype(float), float64=True, steps=1)
    wide = host.location(found)
    assert wide.dtype == np.float64


def test_a_frame_gives_each_argument_its_column(host):
    whole = fit(host, by_name(host), FRAME, steps=2)
    named = fit(host, by_name(host), data=FRAME, steps=2)
    parts = [FRAME[name] for name in "abcy"]
    one_by_one = fit(host, by_name(host), *parts, steps=2)
    assert whole.losses == named.losses == one_by_one.losses
    new = FRAME.iloc[:3].drop(columns="y")
    assert host.package.predict(by_name(host), whole, new)["obs"].mean.shape == (3,)


@IN_PYRO
def test_frames_serve_mini_batches_and_held_out_rows(host):
    options = {"method": "adam", "batch_size": 5, "epochs": 2, "held_out": FRAME, "every": 4}
    assert len(fit(host, by_name(host), FRAME, **options).held_out) > 0
    with pytest.raises(ValueError, match=r"no column 'b'.* its columns are a, c, y; rename"):
        fit(host, by_name(host), FRAME.drop(columns="b"))


def test_a_model_may_have_arguments_named_like_options(host):
    def model(x, y=None, steps=1, method="plain"):
        assert (steps, method) == (3, "other")
        return host.regression(x, y)

    x, y = data(host)
    expected = fit(host, host.regression, x, y, steps=2).losses
    parts = {"x": x, "y": y, "steps": 3, "method": "other"}
    assert fit(host, model, data=parts, steps=2).losses == expected
    assert fit(host, model, data=(x, y, 3, "other"), steps=2).losses == expected


def test_integers_are_taken_or_named(host):
    x = np.arange(3 * ROWS).reshape(ROWS, 3)
    if host.name == "numpyro":
        assert np.isfinite(fit(host, host.regression, x, OUT, steps=1).loss)
        return
    with pytest.raises(TypeError, match=r"input 'x' is torch.int64.*pass x.float\(\)"):
        fit(host, host.regression, x, OUT)


def test_truth_values_are_observations(host):
    truth, numbers = OUT > 0, (OUT > 0).astype(np.float32)
    found = fitted(host, binary(host), IN, truth, by_draws=True)
    expected = fitted(host, binary(host), IN, numbers)
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    prediction = host.package.predict(binary(host), found, host.array(IN))["obs"]
    densities = [prediction.log_prob(host.array(y)) for y in (truth, numbers)]
    np.testing.assert_allclose(*densities, rtol=1e-6)
    loo = host.package.loo(binary(host), found, host.array(IN), host.array(truth))
    assert np.isfinite(loo.elpd_loo)


HIDDEN = {
    "NaN": (None, changed(changed(OUT, 3, np.nan), 7, np.inf)),
    "labels": (
        lambda host: lambda eta: host.dist.Categorical(logits=eta[:, None] * host.array(LOGITS)),
        changed(changed(LABELS, 3, -1), 7, 9),
    ),
}
LOGITS = np.array([0.0, 1.0, -1.0], np.float32)


def test_whole_numbers_are_observations_of_a_bernoulli_by_draws_too(host):
    found = fit(host, binary(host), IN, LABELS % 2, by_draws=True)
    expected = fit(host, binary(host), IN, (LABELS % 2).astype(np.float32))
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-5)
    assert abs(found.by_draws.value - found.loss) < 4 * found.by_draws.standard_error


@pytest.mark.filterwarnings("ignore:leave-one-out weights")
@pytest.mark.parametrize("name", HIDDEN)
def test_what_a_mask_hides_may_be_anything(host, name):
    """The fit, its response and the check by draws are those of the rows that count."""
    family, y = HIDDEN[name]
    model = masked(host, family and family(host))
    found = fitted(host, model, IN, y, SEEN, by_draws=True)
    rows = fitted(host, model, IN[SEEN], y[SEEN], SEEN[SEEN])
    np.testing.assert_allclose(host.location(found), host.location(rows), rtol=2e-3, atol=1e-3)
    assert np.isfinite(found.by_draws.value)
    parts = [host.array(part) for part in (IN, y, SEEN)]
    response = host.package.linear_response(model, found, *parts)
    assert np.isfinite(np.asarray(response.standard_deviation("weight"))).all()
    assert np.isfinite(host.package.loo(model, found, *parts).elpd_loo)


def test_a_mask_may_hide_elements_of_an_event(host):
    """Inside of the event's axes as well as outside of them."""

    def model(x, y=None, seen=None):
        fn = host.dist.Normal(x @ host.weight(), 1.0)
        host.language.sample("obs", fn.mask(seen).to_event(1), obs=y)

    y = changed(OUT, ~SEEN, np.nan)
    by_row = fitted(host, masked(host), IN, y, SEEN)
    assert fitted(host, model, IN, y, SEEN).loss == pytest.approx(by_row.loss, rel=1e-5)


def test_nan_that_the_model_replaces_is_no_mistake(host):
    def model(x, y=None):
        return host.regression(host.np.nan_to_num(x), y)

    found = fitted(host, model, changed(IN, (4, 1), np.nan), OUT, steps=2)
    assert found.losses == fitted(host, model, changed(IN, (4, 1), 0), OUT, steps=2).losses


def test_one_row_is_enough(host):
    assert np.isfinite(fitted(host, host.regression, IN[:1], OUT[:1], steps=2).loss)
    one = host.package.predict(host.regression, trained(host.name), host.array(IN[:1]))
    assert one["obs"].mean.shape == (1,)


def test_each_array_is_checked_once(host, monkeypatch):
    """Steps on the same tensor look at nothing again; in NumPyro they are compiled."""
    seen = []
    package = host.package.__name__
    module = __import__(f"{package}.evaluation.failure_causes", fromlist=["observe"])
    kind = type(module.observe.__self__)
    check = kind.check
    monkeypatch.setattr(kind, "check", lambda *args: seen.append(args) or check(*args))
    fitted(host, counts(host), IN, np.abs(LABELS) + 5, method="adam", steps=40)
    assert 1 <= len(seen) <= 4


def test_a_factor_under_a_mask_is_the_way_to_write_censoring(host):
    """Beside the rows that are seen: the posterior of a slope is Gaussian, and known."""
    x = np.linspace(-1, 1, 12).astype(np.float32)
    seen = np.arange(12) < 8

    def model(x, y=None):
        slope = host.language.sample("slope", host.dist.Normal(0.0, 1.0))
        seen_rows = host.array(seen)
        with host.language.plate("rows", len(x)):
            with host.handlers.mask(mask=seen_rows):
                host.language.sample("y", host.dist.Normal(slope * x, 1.0), obs=y)
            with host.handlers.mask(mask=~seen_rows):
                host.language.factor("rest", -slope * x)

    found = fit(host, model, x, x, method="newton", steps=50)
    precision = 1 + np.sum(x[seen] ** 2)
    mean = (np.sum(x[seen] ** 2) - np.sum(x[~seen])) / precision
    assert float(found.median()["slope"]) == pytest.approx(mean, abs=1e-4)
    lower, upper = np.asarray(found.quantiles([0.05, 0.95])["slope"])
    assert upper - lower == pytest.approx(2 * 1.6449 / precision**0.5, rel=1e-3)
