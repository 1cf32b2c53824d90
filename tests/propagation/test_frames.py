"""Predictions as data frames, in closed form and by particles."""

import jax
import numpy as np
import pytest

from tests.fitting.models import fresh

MOMENTS = ["mean", "sd", "epistemic_sd", "aleatoric_sd", "5%", "95%"]
DRAWN = "numpyro", "sampled"  # takes a random key
LOGITS = np.array([0.4, -0.2, 0.0], np.float32)


def model_of(host, kind):
    """A regression of one number, of two numbers in every row, or of a class."""

    def model(x, y=None):
        mean = x @ host.weight()
        with host.language.plate("rows", len(x)):
            if kind == "classes":
                fn = host.dist.Categorical(logits=mean[:, None] * host.array(LOGITS))
            elif kind == "pairs":
                fn = host.dist.Normal(mean[:, None], host.array(np.full(2, 0.3))).to_event(1)
            else:
                fn = host.dist.Normal(mean, 0.3)
            return host.language.sample("obs", fn, obs=y)

    return model


@pytest.fixture
def predicted(host):
    """A function that makes a model's prediction, of a guide that has met two rows."""
    fresh(host.name)

    def predicted(kind, **options):
        model = model_of(host, kind)
        y = {"classes": [0, 2], "pairs": [[0.1, 0.2], [1.0, 0.0]], "numbers": [0.3, 1.0]}[kind]
        fit = host.fit(model, host.x[:2], host.array(np.asarray(y)), steps=1)
        return host.package.predict(model, fit, host.x[:5], **options)["obs"]

    return predicted


@pytest.mark.parametrize("propagation", ["analytic", "sampled"])
def test_moments_and_intervals_are_columns(host, predicted, propagation):
    key = {"rng_key": jax.random.key(0)} if (host.name, propagation) == DRAWN else {}
    prediction = predicted("numbers", propagation=propagation, **key)
    frame = prediction.to_dataframe()
    assert (list(frame), len(frame)) == (MOMENTS, 5)
    np.testing.assert_allclose(frame["mean"], prediction.mean)
    np.testing.assert_allclose(frame["sd"] ** 2, prediction.variance, rtol=1e-5)
    np.testing.assert_allclose(frame["5%"], prediction.interval(0.9)[0])
    assert list(prediction.to_dataframe(mass=0.5))[-2:] == ["25%", "75%"]
    assert list(prediction.to_dataframe(mass=None)) == MOMENTS[:4]


def test_several_axes_are_an_index(host, predicted):
    prediction = predicted("pairs")
    frame = prediction.to_dataframe()
    assert frame.index.names == ["axis 0", "axis 1"]
    assert frame.loc[(3, 1), "mean"] == pytest.approx(float(prediction.mean[3, 1]))


def test_classes_have_a_column_each(host, predicted):
    prediction = predicted("classes")
    frame = prediction.to_dataframe()
    assert list(frame) == [*(f"probability of {k}" for k in range(3)), "variation_ratio"]
    np.testing.assert_allclose(frame["probability of 2"], prediction.probs[:, 2])
