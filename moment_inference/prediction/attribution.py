"""Where the variance of a prediction comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array, namespace, to_numpy
from moment_calculus.operations.backward.settled import asked_value
from moment_calculus.operations.backward.shares import Share, shares_of
from moment_calculus.predictions.moments import Moments, moments_of_value, refuse_attribution
from moment_inference.display import data_frame, new_axes, numeric_table

OBSERVATION = "observation"  # kind of the noise of the likelihood
RULE = "rule of the likelihood"  # kind of what its rule adds to the sum of the shares
SMALLEST = 1e-9  # relative difference below which the rule adds rounding errors alone


@dataclass(frozen=True)
class Source:
    """What one source adds to the predictive variance of every element.

    Attributes:
        name: the latent site, the input, the operation, or the observed site.
        kind: ``"site"``: the variances of a site or an input, by their derivatives;
            ``"covariance"``: the covariances between its components; ``"noise x noise"``:
            the noise of weights times the noise of what they multiply; ``"Gaussian
            match"``: what an activation adds beyond its expected derivative;
            ``"observation"``: the noise of the likelihood; ``"rule of the likelihood"``:
            the difference to the variance by its own rule.
        variance: of the shape of the prediction's mean.
        elements: of a site or an input that is used as a whole, what each of its m
            components adds, ``[*shape, m]``; else None.
    """

    name: str
    kind: str
    variance: Array
    elements: Array | None = None

    @property
    def label(self) -> str:
        """The name, with the kind where that is not a site."""
        return self.name if self.kind == "site" else f"{self.name} ({self.kind})"


class Attribution:
    """The predictive variance as a sum over sites, inputs, Gaussian matches and noise.

    A sweep backwards takes the mean of an observation as linear in all sources, with the
    expected derivatives of the functions between (Stein's lemma). What a source adds is
    its variance times the derivative of the predictive variance by it, at the moments of
    the sweep forwards.

    Args:
        sources: the summands.

    Example:
        >>> import numpy as np
        >>> parts = Attribution([Source("w", "site", np.array([3.0])),
        ...                      Source("y", "observation", np.array([1.0]))])
        >>> print(parts)
        source                                share
        w                                     0.750
        y (observation)                       0.250
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)

    def __iter__(self) -> Iterator[Source]:
        """Iterate over the sources."""
        return iter(self.sources)

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.sources)

    def __getitem__(self, label: str) -> Source:
        """Return the source with a label such as ``"w"``; raise KeyError without one."""
        for source in self.sources:
            if source.label == label:
                return source
        labels = ", ".join(repr(source.label) for source in self.sources)
        raise KeyError(f"no source {label!r}; there are {labels}")

    @property
    def variance(self) -> Array:
        """The predictive variance: the sum over all sources."""
        return sum((source.variance for source in self.sources[1:]), self.sources[0].variance)

    def share(self, label: str) -> Array:
        """Return the share of a source in the variance of every element.

        Args:
            label: of the source, such as ``"w"`` or ``"w (noise x noise)"``.

        Returns:
            Array of the shape of the prediction's mean, which sums to one over the sources.

        Raises:
            KeyError: if there is no such source.
        """
        return self[label].variance / self.variance

    def mean_shares(self) -> dict[str, float]:
        """Return for each label its part of the variance that is summed over all elements."""
        sums = [float(np.sum(to_numpy(source.variance))) for source in self.sources]
        total = sum(sums)
        return {source.label: part / total for source, part in zip(self.sources, sums, strict=True)}

    def table(self) -> Any:
        """Return the sources as a ``pandas.DataFrame``, the largest first.

        The columns are ``kind``, ``share`` of the variance that is summed over all elements,
        and ``sd``, the root of the mean variance.

        Raises:
            ImportError: if pandas is not installed.
        """
        shares = self.mean_shares()
        ordered = sorted(self.sources, key=lambda source: -shares[source.label])
        rows = [
            {
                "kind": source.kind,
                "share": shares[source.label],
                "sd": float(np.sqrt(max(to_numpy(source.variance).mean(), 0.0))),
            }
            for source in ordered
        ]
        return data_frame(rows, [source.name for source in ordered], "source")

    def plot(self, axes: Any = None) -> Any:
        """Plot the shares as bars, the largest first.

        Args:
            axes: axes of Matplotlib; by default those of a new figure.

        Returns:
            The axes.

        Raises:
            ImportError: if Matplotlib is not installed.
        """
        axes = new_axes(axes, figsize=(7, 1.0 + 0.3 * len(self)))
        shares = dict(sorted(self.mean_shares().items(), key=lambda pair: pair[1]))
        axes.barh(list(shares), list(shares.values()))
        axes.set_xlabel("share of the predictive variance")
        return axes

    def __str__(self) -> str:
        """Return a table of the shares, the largest first."""
        shares = sorted(self.mean_shares().items(), key=lambda pair: -pair[1])
        return numeric_table({"source": "<34", "share": ">8.3f"}, shares)


def attribution_of(prediction: Any, mean: Any) -> Attribution:
    """Return the attribution of a prediction, given the mean of its observation as a value."""
    if prediction.is_restored:
        refuse_attribution(prediction.name)
    shares = shares_of(mean)
    sources = [Source(*share) for share in shares]
    rest = prediction.epistemic_variance - _total(shares, prediction.epistemic_variance)
    largest = np.max(np.abs(to_numpy(prediction.epistemic_variance)), initial=0.0)
    if np.max(np.abs(to_numpy(rest)), initial=0.0) > SMALLEST * largest:
        sources.append(Source(prediction.name, RULE, rest))
    sources.append(Source(prediction.name, OBSERVATION, prediction.aleatoric_variance))
    return Attribution(sources)


def moments_with_attribution(value: Any) -> Moments:
    """Return the moments of what is asked for, a value or an array, with its attribution."""
    asked = asked_value(value)
    moments = moments_of_value(asked)
    return moments.attributed(lambda: Attribution([Source(*share) for share in shares_of(asked)]))


def _total(shares: Sequence[Share], like: Array) -> Array:
    zero = namespace(like).zeros_like(like)
    return sum((share.variance for share in shares), zero)
