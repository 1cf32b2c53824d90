"""Nested Laplace in the library's own grid, matrices and factors, and its grid without corrections,
for `nested_peers`: the same `nested`, of which one step is another.

Laplace: the mode of the field at each point by Newton's method with observed derivatives, and the
log density there with half the log determinant of its curvature; marginals are Gaussian mixtures.
"""

import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from unittest import mock

import harness
import jax
import jax.numpy as jnp
import nested_peers
import numpy as np
from nested_models import MODELS

from moment_inference.nested import inference
from moment_inference.nested.conditional import Conditional, Conditioning
from moment_inference.nested.cumulant import Corrections
from moment_inference.nested.factors import factorise
from moment_inference.nested.sparse import Sparse
from numpyro_moments.response.conditional import ConditionalModel

STEPS, REACH, DECREMENT = 60, 4.0, 1e-7  # as the search of the library has them


def variants(name):
    """Errors and seconds of `nested` and of its variants, which find its programs compiled."""
    host, case = harness.load("numpyro"), MODELS[name]()
    known = nested_peers.reference(name)
    with host.own_parameters(), host.doubles():
        data, model = tuple(map(host.array, case.data)), case.make(host)
        host.fresh()
        infer = lambda: host.package.nested(model, *data)  # noqa: E731
        posterior, seconds = nested_peers.twice(infer)
        found = {"nested": nested_peers.errors(name, case, posterior) | {"seconds": seconds}}
        mixture = nested_peers.elements(known, case, mixture_alone(posterior))
        found["nested"]["elements of a mixture"] = mixture
        for title, laplace in (("without correction", False), ("Laplace", True)):
            with variant(laplace):
                posterior, seconds = nested_peers.twice(infer)
            found[title] = nested_peers.errors(name, case, posterior)
            found[title]["seconds"] = {"second": seconds["second"]}
    yield found


def uncorrected(model, conditional, weights):
    """No correction of any part."""
    points, size = conditional.mean.shape
    none = np.zeros((points, size))
    return Corrections(np.zeros(points), none, none, none, np.zeros(points))


@contextmanager
def variant(laplace):
    """Let `nested` have no corrections, and Laplace's approximation in place of the ELBO."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(inference, "corrected_field", uncorrected))
        if laplace:
            stack.enter_context(mock.patch.object(inference, "Conditioning", AtMode))
        yield


def mixture_alone(posterior):
    """A posterior whose field is a mixture of the optimal Gaussians, its weights corrected."""
    found = posterior._inference
    none = np.zeros_like(found.corrections.mean)
    corrections = found.corrections._replace(mean=none, variance=none, third=none)
    return type(posterior)(posterior._host, replace(found, corrections=corrections))


class Observed(ConditionalModel):
    """A model whose log likelihoods have derivatives at values of their predictors."""

    def observed(self, theta, eta):
        """f, f′ and f″ of all observations, [g, 3, n]."""
        return self._run("_observed", theta, eta)

    def _observed(self, theta, eta):
        values = lambda e: self._at_predictors(theta, e[None])[0]  # noqa: E731
        slope = jax.grad(lambda e: values(e).sum())
        first, second = jax.jvp(slope, (eta,), (jnp.ones_like(eta),))
        return jnp.stack([values(eta), first, second])


@dataclass(frozen=True, eq=False)
class Part:
    """The model at some points."""

    model: Observed
    theta: np.ndarray
    precision: Sparse
    design: Sparse
    constant: np.ndarray
    slope: np.ndarray
    offset: np.ndarray

    def take(self, points):
        """The model at some of the points."""
        parts = [getattr(self, each.name) for each in fields(self)[1:]]
        matrices = [part.take(points) for part in parts[1:3]]
        arrays = [part[points] for part in (parts[0], *parts[3:])]
        return Part(self.model, arrays[0], *matrices, *arrays[1:])

    def terms(self, mean):
        """f, f′ and f″, and the log joint density of field and observations."""
        terms = self.model.observed(self.theta, self.offset + self.design.times(mean))
        quadratic = ((self.slope - self.precision.times(mean) / 2) * mean).sum(1)
        return terms, self.constant + quadratic + terms[:, 0].sum(1)

    def newton(self, mean, terms):
        """The curvature's factors, Newton's step, and the nats that it promises."""
        factors = factorise(self.precision + self.design.gram(-terms[:, 2]))
        slope = self.slope - self.precision.times(mean)
        slope = slope + self.design.transposed_times(terms[:, 1])
        step = factors.solve(slope)
        move = np.abs(self.design.times(step)).max(1, initial=0)
        length = np.minimum(1, REACH / np.maximum(move, 1e-300))
        return factors, length[:, None] * step, (slope * step).sum(1)


class AtMode(Conditioning):
    """Laplace's approximation at points of the hyperparameters."""

    def at(self, theta, start=None, floor=-np.inf):
        """The Gaussians at the modes, with Laplace's log density in place of the ELBO."""
        model = Observed(*(getattr(self.model, each.name) for each in fields(self.model)))
        matrices = self.precision.at(theta), self.design.at(theta)
        part = Part(model, theta, *matrices, *model.at_zero(theta))
        mean = np.zeros_like(part.slope) if start is None else start.mean.copy()
        log_density, variance, terms = climbed(part, mean)
        predictor = part.offset + part.design.times(mean)
        found = theta, model.log_prior(theta), log_density, mean, *matrices, predictor
        return Conditional(*found, variance, -terms[:, 2])


def climbed(part, mean):
    """Move means to the modes; Laplace's log density, variances of predictors and the terms."""
    log_density, variance = np.full(len(mean), np.nan), np.zeros_like(part.offset)
    active, (terms, joint) = np.arange(len(mean)), part.terms(mean)
    constant = mean.shape[1] * math.log(2 * math.pi)
    for _ in range(STEPS):
        at = part.take(active)
        factors, step, promised = at.newton(mean[active], terms[active])
        done = ~(promised > DECREMENT)
        if done.any():
            ends = active[done]
            log_density[ends] = joint[ends] + (constant - factors.log_determinant[done]) / 2
            variance[ends] = factors.variances(at.design)[done]
        active = active[~done]
        if not len(active):
            break
        found = searched(part.take(active), mean[active], step[~done], joint[active])
        mean[active], terms[active], joint[active] = found
    return log_density, variance, terms


def searched(part, mean, step, before):
    """The mean after a step, halved where the joint density falls, with its terms."""
    length = np.ones(len(mean))
    for _ in range(10):
        moved = mean + length[:, None] * step
        terms, joint = part.terms(moved)
        falls = ~(joint >= before - 1e-9 * np.abs(before))
        if not falls.any():
            break
        length[falls] /= 2
    return moved, terms, joint
