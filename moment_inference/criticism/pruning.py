"""Which weights and units a trained guide switches off, and what is left without them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import to_numpy
from moment_calculus.predictions.marginals import BinaryMarginal, ClassMarginal
from moment_inference.criticism.model_with_draws import split_arguments
from moment_inference.display import aligned, data_frame

SHARES = (*np.linspace(0.0, 0.9, 19), 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995)
INDEX_BYTES = 4  # of the index of a weight that is kept alone

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class PruningLevel:
    """The network without the weights from some threshold on."""

    threshold: float  # log α from which weights are off
    off: float  # share of the weights that are off
    log_likelihood: float  # of a datum, mean over the data, at the means of the weights
    standard_error: float  # of this mean
    accuracy: float  # share of right classes; NaN if no classes are observed


@dataclass(frozen=True, eq=False, repr=False)
class PruningReport:
    """Which weights and units are off, and what is left without them.

    A weight with posterior N(m, v) is off where log α = log v/m² is at least the
    threshold. The network without them has the means of the others as its weights.

    Args:
        log_alpha: by site, log α of every weight.
        means: by site, posterior mean of every weight.
        fixed: by site, means of the sites that are not pruned.
        whole: the network with all weights.
        pruned: the network without those that are off.
        levels: the network at thresholds that leave less and less.
        score: returns the levels of thresholds, for :meth:`at`.
    """

    log_alpha: Arrays
    means: Arrays
    fixed: Arrays
    whole: PruningLevel
    pruned: PruningLevel
    levels: tuple[PruningLevel, ...]
    score: Callable[[Sequence[float]], list[PruningLevel]]

    @property
    def threshold(self) -> float:
        """log α from which a weight is off."""
        return self.pruned.threshold

    @cached_property
    def off(self) -> dict[str, np.ndarray]:
        """By site, whether each weight is off."""
        return {name: value >= self.threshold for name, value in self.log_alpha.items()}

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """By site, the means of the weights, zero where they are off; and other sites' means."""
        kept = {name: np.where(self.off[name], 0.0, mean) for name, mean in self.means.items()}
        kept = {name: value.astype(self.means[name].dtype) for name, value in kept.items()}
        return {**self.fixed, **kept}

    @property
    def units(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """By site of at least two axes, which slices of its first and last axis are off as a whole.

        Of a weight [outputs, inputs] these are outputs without inputs, and inputs that no
        output takes.
        """
        return {
            name: (
                np.flatnonzero(off.reshape(len(off), -1).all(axis=1)),
                np.flatnonzero(off.reshape(-1, off.shape[-1]).all(axis=0)),
            )
            for name, off in self.off.items()
            if off.ndim > 1
        }

    @property
    def bytes_dense(self) -> int:
        """Bytes of all weights."""
        return sum(mean.nbytes for mean in self.means.values())

    @property
    def bytes_sparse(self) -> int:
        """Bytes of the weights that are kept, each with the four of its place."""
        kept = {name: int((~off).sum()) for name, off in self.off.items()}
        return sum(n * (self.means[name].itemsize + INDEX_BYTES) for name, n in kept.items())

    @property
    def bytes_saved(self) -> int:
        """Bytes that the kept weights save; zero if all weights take less."""
        return max(self.bytes_dense - self.bytes_sparse, 0)

    def at(self, threshold: float) -> PruningReport:
        """Return the report at another threshold.

        Args:
            threshold: log α from which a weight is off.
        """
        return replace(self, pruned=self.score([threshold])[0])

    def table(self) -> Any:
        """Return the levels as a ``pandas.DataFrame``, one row for each threshold.

        Raises:
            ImportError: without pandas.
        """
        rows = [vars(level) for level in self.levels]
        return data_frame(rows, range(len(rows)), "level")

    def __repr__(self) -> str:
        """Return the report in words, with one line for each site."""
        whole, pruned = self.whole, self.pruned
        right = "" if math.isnan(whole.accuracy) else _accuracies(whole, pruned)
        lines = [
            f"{pruned.off:.1%} of the weights are off: log α ≥ {pruned.threshold:.3g}",
            f"log-likelihood of a datum {whole.log_likelihood:.4g} ± {whole.standard_error:.1g}, "
            f"without them {pruned.log_likelihood:.4g}{right}",
            f"bytes {self.bytes_dense}, of the others with their places {self.bytes_sparse}",
            "",
        ]
        heading = ("site", "shape", "off", "first axis", "last axis")
        return "\n".join([*lines, *aligned([heading, *map(self._row, self.off)])])

    def _row(self, name: str) -> tuple[str, ...]:
        off = self.off[name]
        units = self.units.get(name)
        ends = ("", "") if units is None else (str(len(part)) for part in units)
        return name, "×".join(map(str, off.shape)) or "1", f"{off.mean():.1%}", *ends


def _accuracies(whole: PruningLevel, pruned: PruningLevel) -> str:
    return f"; accuracy {whole.accuracy:.2%}, {pruned.accuracy:.2%}"


def pruning_report(
    posterior: Any, threshold: float | None, held_out: Any, sites: Collection[str] | None
) -> PruningReport:
    """Return the report of a posterior, whose model runs in its context."""
    problem = posterior.problem(None)
    latents = {latent.name: latent for latent in problem.latents}
    values = {
        name: to_numpy(latent.to_support(problem.array(latent.loc)))
        for name, latent in latents.items()
    }
    real = {n: latent for n, latent in latents.items() if np.array_equal(values[n], latent.loc)}
    chosen = {name: real[name] for name in _checked_sites(sites, real, latents)}
    model = posterior.model(values)
    if held_out is not None:
        model = posterior.with_arguments(model, *split_arguments(held_out))
    means = {name: values[name] for name in chosen}
    with np.errstate(divide="ignore"):
        log_alpha = {
            name: 2 * (np.log(to_numpy(latent.scale)) - np.log(np.abs(means[name])))
            for name, latent in chosen.items()
        }
    fixed = {name: value for name, value in values.items() if name not in chosen}
    score = _Scores(model, log_alpha, means, fixed)
    everything = np.concatenate([value.reshape(-1) for value in log_alpha.values()])
    thresholds = np.quantile(everything, 1 - np.asarray(SHARES[1:]), method="nearest")
    levels = score([math.inf, *dict.fromkeys(thresholds.tolist())])
    pruned = _sparsest(levels) if threshold is None else score([threshold])[0]
    return PruningReport(log_alpha, means, fixed, levels[0], pruned, tuple(levels), score)


def _checked_sites(
    sites: Collection[str] | None, real: Collection[str], latent: Collection[str]
) -> list[str]:
    """Return the sites to prune; raise ValueError if one is not there or cannot be zero."""
    chosen = [*real] if sites is None else [*sites]
    if not chosen or any(name not in real for name in chosen):
        raise ValueError(
            f"sites={sites!r}: weights can be off at sites whose support is all real numbers, "
            f"{', '.join(map(repr, real)) or 'none'} among {', '.join(map(repr, latent))}"
        )
    return chosen


def _sparsest(levels: Sequence[PruningLevel]) -> PruningLevel:
    """Return the level with most weights off within a standard error of the whole network."""
    lowest = levels[0].log_likelihood - levels[0].standard_error
    return max((x for x in levels if x.log_likelihood >= lowest), key=lambda level: level.off)


@dataclass(frozen=True)
class _Scores:
    """Scores a network at thresholds."""

    model: Any  # ModelWithDraws
    log_alpha: Arrays
    means: Arrays
    fixed: Arrays

    def __call__(self, thresholds: Sequence[float]) -> list[PruningLevel]:
        """Return the network at thresholds."""
        logs, right = self._of_data(thresholds)
        means, spreads = logs.mean(axis=1), logs.std(axis=1) / math.sqrt(logs.shape[1])
        off = [
            np.concatenate([self._off(name, limit).reshape(-1) for name in self.log_alpha]).mean()
            for limit in thresholds
        ]
        rows = zip(thresholds, off, means, spreads, right, strict=True)
        return [PruningLevel(*map(float, row)) for row in rows]

    def _of_data(self, limits: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
        """Return log-likelihoods [limits, data], and shares of right classes [limits]."""
        values = {
            name: np.stack([np.where(self._off(name, limit), 0.0, mean) for limit in limits])
            for name, mean in self.means.items()
        }
        values = {name: value.astype(self.means[name].dtype) for name, value in values.items()}
        values |= {name: np.stack([value] * len(limits)) for name, value in self.fixed.items()}
        predictions, observed = self.model.mixtures(values), self.model.observed
        if not observed:
            raise ValueError(
                "the model observes nothing: pass the observations, in the data or in held_out"
            )
        count = len(limits)
        parts = {name: predictions[name].parts for name in observed}
        logs = [
            to_numpy(part.log_prob(observed[name])).reshape(count, -1)
            for name, part in parts.items()
        ]
        right = [_right(part, observed[name], count) for name, part in parts.items()]
        known = [part for part in right if part is not None]
        accuracy = np.concatenate(known, axis=1).mean(axis=1) if known else np.full(count, np.nan)
        return np.concatenate(logs, axis=1).astype(float), accuracy

    def _off(self, name: str, limit: float) -> np.ndarray:
        return (self.log_alpha[name] >= limit) & (limit < math.inf)


def _right(part: Any, observed: np.ndarray, count: int) -> np.ndarray | None:
    """Return whether the likeliest class is the observed one, [limits, data]; None of others."""
    if not isinstance(part.marginal, ClassMarginal | BinaryMarginal):
        return None
    probs = to_numpy(part.probs)
    is_binary = isinstance(part.marginal, BinaryMarginal)
    likeliest = probs > 0.5 if is_binary else probs.argmax(axis=-1)
    return (likeliest == observed).reshape(count, -1)
