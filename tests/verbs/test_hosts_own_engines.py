"""The frameworks' own SVI and Predictive beside guides and fits of this package."""

import jax
import numpy as np
import pyro
import pytest
import torch

from pyro_moments.criticism.posteriors import posterior_of
from tests.fitting.models import fresh

LOSSES = ["Trace_ELBO", "TraceMeanField_ELBO"]


def trained_by_svi(host, guide, loss, handler=lambda guide: guide):
    """Two steps of the framework's own SVI; the losses."""
    infer, data = host.language.infer, (host.x, host.y)
    elbo = getattr(infer, loss)()
    if host.name == "pyro":
        svi = infer.SVI(host.regression, handler(guide), pyro.optim.Adam({"lr": 0.1}), elbo)
        return [svi.step(*data) for _ in range(2)]
    svi = infer.SVI(host.regression, handler(guide), host.language.optim.Adam(0.1), elbo)
    state = svi.init(jax.random.key(0), *data)
    return [float(svi.update(state, *data)[1])]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_host_s_svi_binds_a_guide_without_a_model(host, loss):
    guide = host.package.DVIGuide()
    assert np.isfinite(trained_by_svi(host, guide, loss)).all()
    assert guide.model == host.regression


def test_it_binds_the_user_s_model_where_particles_are_a_plate():
    host = fresh("pyro")
    guide, infer = host.package.DVIGuide(), host.language.infer

    def slope(x):
        weight = host.language.sample("weight", host.dist.Normal(0.0, 1.0))
        host.observe(x, host.dist.Normal(weight, 1.0), x)

    loss = infer.Trace_ELBO(num_particles=3, vectorize_particles=True, max_plate_nesting=1)
    infer.SVI(slope, guide, pyro.optim.Adam({"lr": 0.1}), loss).step(host.y)
    assert guide.model is slope
    assert guide.median()["weight"].shape == ()


def test_it_binds_a_guide_inside_handlers():
    """As those that rename, scale or mask sites."""
    host = fresh("numpyro")
    guide = host.package.DVIGuide()
    trained_by_svi(host, guide, "Trace_ELBO", lambda guide: host.handlers.scale(guide, scale=1.0))
    assert guide.model == host.regression


def test_elsewhere_a_guide_without_a_model_is_refused(host):
    """Predictive has a model, too, but would draw from parameters that nothing has trained."""
    given = {"params": {}} if host.name == "numpyro" else {}
    predictive = host.language.infer.Predictive(
        host.regression, guide=host.package.DVIGuide(), num_samples=2, **given
    )
    key = (jax.random.key(0),) if host.name == "numpyro" else ()
    with pytest.raises(RuntimeError, match=r"DVIGuide\(\) has not met a model yet"):
        predictive(*key, host.x)


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("kind", ["DVIGuide", "AutoNormal"])
def test_predictive_takes_the_guide_of_a_fit_in_double_precision(kind, arrays):
    """In Pyro, whose guides have parameters of their own, in the precision of the model."""
    host = fresh("pyro")
    data = [part.numpy() if arrays else part for part in (host.x, host.y)]
    model, predictive = host.regression, host.language.infer.Predictive
    guide = host.package.DVIGuide() if kind == "DVIGuide" else host.autoguide.AutoNormal(model)
    result = host.package.fit(model, guide, *data, steps=2, float64=True, by_draws=False)
    assert (
        predictive(model, guide=result.guide, num_samples=3)(host.x)["obs"].dtype is torch.float32
    )
    assert {part.dtype for part in result.params.values()} == {torch.float64}
    assert result.predict(host.x)["obs"].mean.dtype is torch.float64
    assert result.median()["weight"].dtype is torch.float64


@pytest.mark.filterwarnings("error:Explicitly requested dtype")
def test_numpyros_predictive_takes_the_parameters_of_a_fit_in_double_precision():
    host = fresh("numpyro")
    model, data = host.regression, (host.x, host.y)
    result = host.fit(model, *data, steps=2, float64=True, by_draws=False)
    drawn = host.language.infer.Predictive(
        model, guide=result.guide, params=result.params, num_samples=3
    )(jax.random.key(0), host.x)
    assert drawn["obs"].dtype == np.float32
    assert result.predict(host.x)["obs"].mean.dtype == np.float64


def test_a_model_in_double_precision_keeps_its_guide_so():
    host = fresh("pyro")
    x, y = host.x.double(), host.y.double()

    def model(x, y=None):
        prior = host.dist.Normal(x.new_zeros(3), 1.0).to_event(1)
        weight = host.language.sample("weight", prior)
        host.observe(x, host.dist.Normal(x @ weight, 0.3), y)

    result = host.fit(model, x, y, steps=2, float64=True)
    predictive = host.language.infer.Predictive(model, guide=result.guide, num_samples=3)
    assert predictive(x)["obs"].dtype is torch.float64


def test_chains_in_single_precision_are_a_reference_of_a_fit_in_double():
    host = fresh("pyro")
    model, data = host.regression, (host.x, host.y)
    result = host.fit(model, *data, method="newton", float64=True)
    infer = host.language.infer
    chains = infer.MCMC(infer.NUTS(model), 60, warmup_steps=20, disable_progbar=True)
    chains.run(*data)
    posterior = posterior_of(result, model, data, {}).with_approximation(chains)
    draws = posterior.draws(60)
    assert draws.values["weight"].dtype == np.float64
    with posterior.model_context():
        example = {name: value[0, 0] for name, value in draws.values.items()}
        log_joint = posterior.model(example).log_joint({"weight": draws.values["weight"][0]})
    assert np.isfinite(log_joint).all()
