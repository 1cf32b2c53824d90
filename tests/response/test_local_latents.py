"""Latent sites that belong to a datum are weighed with it, in both hosts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.checks.marks import IN_PYRO, IN_PYRO_FIRST
from tests.response.models import doubles, response
from tests.response.oracle import NOISE

GROUPS, TRIALS, WIDTH = 12, 3, 3.0
Y = np.random.default_rng(2).normal(1.0, 1.0, size=(TRIALS, GROUPS))
WITHIN = 1 + NOISE**2 / TRIALS  # variance of a group's mean about the centre


def groups(host):
    """Effects of groups about a centre, each observed several times."""
    sample, plate, normal = host.language.sample, host.language.plate, host.dist.Normal

    def model(y):
        centre = sample("centre", normal(0.0, WIDTH))
        with plate("groups", y.shape[1], dim=-1):
            effect = sample("effect", normal(centre, 1.0))
            with plate("trials", y.shape[0], dim=-2):
                sample("obs", normal(effect, NOISE), obs=y)

    return model


def posterior_mean(weights):
    """Of the centre, where every group's marginal likelihood has a weight."""
    vjp = (weights * Y.mean(0)).sum() / WITHIN
    return vjp / (WIDTH**-2 + weights.sum() / WITHIN)


def optimum():
    """Location and scale of the sites by mean field."""
    centre = posterior_mean(np.ones(GROUPS))
    own = 1 + TRIALS / NOISE**2
    effect = (centre + Y.sum(0) / NOISE**2) / own
    scales = (WIDTH**-2 + GROUPS) ** -0.5, np.full(GROUPS, own**-0.5)
    return {"centre": (centre, scales[0]), "effect": (effect, scales[1])}


@IN_PYRO_FIRST
def test_the_influence_of_a_group_is_that_of_all_that_belongs_to_it(host):
    found = response(host, groups(host), Y, sites=optimum())
    influence = np.asarray(found.influence("centre", datum="groups"))
    steps = 1e-5 * np.eye(GROUPS)
    ends = [[posterior_mean(1 + sign * step) for step in steps] for sign in (1, -1)]
    np.testing.assert_allclose(influence, (np.array(ends[0]) - ends[1]) / 2e-5, rtol=1e-6)
    errors = influence - influence.mean()
    error = found.standard_error("centre", datum="groups")
    np.testing.assert_allclose(error, np.sqrt((errors**2).sum()), rtol=1e-9)
    assert np.asarray(found.influence("centre")).shape == (TRIALS, GROUPS)


@IN_PYRO
def test_a_guide_of_one_vector_does_not_tell_what_a_datum_adds(host):
    infer = __import__(f"{host.name}.infer.autoguide", fromlist=["AutoDiagonalNormal"])
    names = {
        "numpyro": ("auto_loc", "auto_scale"),
        "pyro": ("AutoDiagonalNormal.loc", "AutoDiagonalNormal.scale"),
    }[host.name]
    sites = optimum()
    values = [np.r_[sites["centre"][part], sites["effect"][part]] for part in (0, 1)]
    with doubles(host):
        model = groups(host)
        params = dict(zip(names, map(host.array, values), strict=True))
        guide = infer.AutoDiagonalNormal(model)
        found = host.package.linear_response(model, guide, host.array(Y), params=params)
    with pytest.raises(ValueError, match=r"'effect' belongs to the data.*'groups'.*DVIGuide"):
        found.influence("centre", datum="groups")
