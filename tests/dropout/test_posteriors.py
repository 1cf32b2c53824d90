"""The posterior of MCDropoutGuide: draws, quantiles and what has no density, in both hosts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy import stats

from moment_calculus.errors import UnsupportedMoments
from tests.fitting.models import started
from tests.numpyro.one_program import evaluated

P, K = 0.4, 0.6
KEY = jax.random.key(0)
X = np.linspace(-1, 1, 30, dtype=np.float32).reshape(10, 3)
Y = np.tanh(X.sum(-1))


def normal(host, name, *shape):
    prior = host.dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))
    return host.language.sample(name, prior)


def network(host):
    def model(x, y=None):
        hidden = host.np.tanh(x @ normal(host, "w", 3, 4) + normal(host, "b", 4))
        scale = host.language.sample("s", host.dist.Gamma(2.0, 2.0))
        host.observe(x, host.dist.Normal(hidden @ normal(host, "v", 4), scale), y)

    return model


def begun(host, model=None, y=Y, **options):
    """A model, a guide with its first parameters, and the data."""
    model, data = model or network(host), (host.array(X), host.array(y))
    guide = host.package.MCDropoutGuide(p=P, **options)
    return model, guide, started(host, model, guide, *data), data


def numbers(sites):
    return {name: np.asarray(getattr(x, "detach", lambda x=x: x)()) for name, x in sites.items()}


def drawn(guide, params, count):
    def draw(params):
        return guide.sample_posterior(KEY, params, sample_shape=(count,))

    return numbers(evaluated(draw, *params) if params else guide.sample_posterior(count))


def quantiles(guide, params, levels):
    def found(params):
        return guide.quantiles(params, levels)

    return numbers(evaluated(found, *params) if params else guide.quantiles(levels))


@pytest.mark.parametrize("noise", ["bernoulli", "gaussian", "dropconnect"])
def test_draws_and_quantiles_have_the_moments_of_the_posterior(host, noise):
    """One mask over the inputs for each draw, shared by the outputs."""
    _, guide, params, _ = begun(host, noise=noise)
    draws = drawn(guide, params, 4000)["w"]
    ratio = draws / numbers(guide.median(*params))["w"]
    assert ratio.shape == (4000, 3, 4)
    assert (ratio.std(2) < 1e-5).all() == (noise != "dropconnect")
    np.testing.assert_allclose(ratio.mean(0), 1.0, atol=4 * (P / K / 4000) ** 0.5)
    np.testing.assert_allclose(ratio.var(0), P / K, rtol=0.1)
    levels = [0.1, 0.37, 0.43, 0.57, 0.63, 0.9]
    for level, values in zip(levels, quantiles(guide, params, levels)["w"], strict=True):
        assert ((draws <= values + 1e-6).mean(0) > level - 0.02).all()
        assert ((draws >= values - 1e-6).mean(0) > 1 - level - 0.02).all()


def test_other_sites(host):
    for others in ("point", "mean_field"):
        _, guide, params, _ = begun(host, others=others)
        levels, draws = quantiles(guide, params, [0.1, 0.9]), drawn(guide, params, 9)
        for name in ("b", "s"):
            low, high = levels[name]
            assert ((low < high) == (others == "mean_field")).all()
            assert ((draws[name].std(0) > 1e-6) == (others == "mean_field")).all()


@pytest.mark.parametrize("name", ["Trace_ELBO", "TraceMeanField_ELBO"])
def test_elbos_by_densities_refuse_it(host, name):
    model, guide, params, data = begun(host)
    key = (KEY,) if params else ()
    with pytest.raises(UnsupportedMoments, match=r"'w' .* has no density") as raised:
        getattr(host.language.infer, name)().loss(*key, *params, model, guide, *data)
    assert "DeterministicELBO" in raised.value.remedy


def test_it_is_no_prior_of_new_data(host):
    def fit(**options):
        options |= {"steps": 1, "progress_bar": False, "by_draws": False}
        guide, data = host.package.MCDropoutGuide(), (host.array(X), host.array(Y))
        return host.package.fit(network(host), guide, *data, **options)

    with pytest.raises(ValueError, match="MCDropoutGuide has no density"):
        fit(prior=fit())


SPELLINGS = {
    "numpyro": {
        "matmul": lambda x, w: x @ w,
        "columns": lambda x, w: (w.T @ x.T).T,
        "einsum": lambda x, w: jnp.einsum("io,bi->bo", w, x),
        "tensordot": lambda x, w: jnp.tensordot(x, w, 1),
        "rows": lambda x, w: jax.vmap(lambda row: w.T @ row)(x),
        "jit": lambda x, w: jax.jit(jnp.dot)(x, jnp.copy(w)),
    },
    "pyro": {
        "matmul": lambda x, w: x @ w,
        "linear": lambda x, w: torch.nn.functional.linear(x, w.T),
        "mm": lambda x, w: torch.mm(x, w.contiguous()),
        "columns": lambda x, w: (w.mT @ x.T).T,
        "rmatmul": lambda x, w: (w.transpose(0, 1) @ x.T).permute(1, 0),
        "addmm": lambda x, w: torch.addmm(torch.zeros(4), x, w),
        "einsum": lambda x, w: torch.einsum("bi,io->bo", x, w.clone()),
        "tensordot": lambda x, w: torch.tensordot(x, w.to(torch.float32), 1),
    },
}


def test_spellings_of_a_linear_map(host):
    def several(x, y=None):
        for name, spelled in SPELLINGS[host.name].items():
            f = spelled(x, normal(host, f"w of {name}", 3, 4))
            with host.language.plate(f"data of {name}", len(x)):
                host.language.sample(name, host.dist.Normal(f, 0.3).to_event(1), obs=y)

    model, guide, params, data = begun(host, several, np.ones((10, 4), np.float32))
    if params:
        elbo = host.package.DeterministicELBO(sum_sites=False)
        terms = evaluated(lambda params: elbo.loss(KEY, params, model, guide, *data), *params)
        terms = {name: -term for name, term in terms.items()}
    else:
        terms = host.package.DeterministicELBO().site_terms(model, guide, *data)
    for name in SPELLINGS[host.name]:
        loc = numbers(guide.median(*params))[f"w of {name}"]
        variance = P / K * (X**2 @ loc**2)
        expected = stats.norm(X @ loc, 0.3).logpdf(1.0) - 0.5 * variance / 0.09
        assert float(terms[name]) == pytest.approx(expected.sum(), rel=1e-5), name
