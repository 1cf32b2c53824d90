"""Regressions of posteriordb as designs: covariates, outcome and priors, as their Stan models say.

Source: Magnusson et al., posteriordb (github.com/stan-dev/posteriordb).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Data = dict[str, Any]
Columns = Callable[[Data], list[np.ndarray]]


@dataclass(frozen=True)
class Design:
    """y ~ Normal(Xβ, σ), or with an intercept of its own for Stan's centred form.

    Args:
        x: covariates [n, k].
        y: outcome [n].
        beta: mean and standard deviation of the coefficients' prior, each a number or [k]; None if
            it is flat.
        sigma: prior of the noise: a name and a scale; None if it is flat.
        intercept: degrees of freedom, location and scale of its Student prior, if it is a site of
            its own.
        names: the reference's names of the coefficients.
    """

    x: np.ndarray
    y: np.ndarray
    beta: tuple[Any, Any] | None = None
    sigma: tuple[str, float] | None = None
    intercept: tuple[float, float, float] | None = None
    names: tuple[str, ...] = field(default=())

    def coefficients(self) -> tuple[str, ...]:
        return self.names or tuple(f"beta[{i + 1}]" for i in range(self.x.shape[1]))


HALF_CAUCHY = ("HalfCauchy", 2.5)


def _of(data: Data, *names: str) -> list[np.ndarray]:
    return [np.asarray(data[name], float) for name in names]


def _linear(outcome: np.ndarray, columns: Sequence[np.ndarray], **priors: Any) -> Design:
    x = np.stack([np.ones_like(outcome), *columns], axis=1)
    return Design(x, np.asarray(outcome, float), **priors)


def _autoregression(data: Data) -> Design:
    y, order = np.asarray(data["y"], float), data["K"]
    lagged = [y[order - k - 1 : len(y) - k - 1] for k in range(order)]
    names = ("alpha", *(f"beta[{k + 1}]" for k in range(order)))
    return _linear(y[order:], lagged, beta=(0.0, 10.0), sigma=HALF_CAUCHY, names=names)


def _diamonds(data: Data) -> Design:
    x = np.asarray(data["X"], float)[:, 1:]
    names = tuple(f"b[{i + 1}]" for i in range(x.shape[1]))
    y = np.asarray(data["Y"], float)
    sigma = ("HalfStudent", 10.0)
    return Design(x - x.mean(0), y, (0.0, 1.0), sigma, (3.0, 8.0, 10.0), names)


def _earnings(columns: Columns, transform: Callable = np.log) -> Callable[[Data], Design]:
    return lambda data: _linear(transform(np.asarray(data["earn"], float)), columns(data))


def _kidiq(columns: Columns, sigma: Any = None) -> Callable[[Data], Design]:
    return lambda data: _linear(np.asarray(data["kid_score"], float), columns(data), sigma=sigma)


def _with_product(one: np.ndarray, other: np.ndarray) -> list[np.ndarray]:
    return [one, other, one * other]


def _standardised_height(data: Data) -> list[np.ndarray]:
    height, male = _of(data, "height", "male")
    z = (height - height.mean()) / height.std(ddof=1)
    return [z, male, z * male]


def _centred(data: Data) -> list[np.ndarray]:
    school, iq = _of(data, "mom_hs", "mom_iq")
    return _with_product(school - school.mean(), iq - iq.mean())


def _at_reference(data: Data) -> list[np.ndarray]:
    school, iq = _of(data, "mom_hs", "mom_iq")
    return _with_product(school - 0.5, iq - 100)


def _work(data: Data) -> list[np.ndarray]:
    return [(np.asarray(data["mom_work"]) == level).astype(float) for level in (2, 3, 4)]


def _kilpisjarvi(data: Data) -> Design:
    prior = [np.array([data[f"{what}alpha"], data[f"{what}beta"]]) for what in ("pmu", "ps")]
    (x, y), names = _of(data, "x", "y"), ("alpha", "beta")
    return _linear(y, [x], beta=tuple(prior), names=names)


def _bushes(data: Data) -> list[np.ndarray]:
    return _of(data, "diam1", "diam2", "canopy_height", "total_height", "density")


def _volumes(data: Data, *others: str) -> list[np.ndarray]:
    one, two, height = _of(data, "diam1", "diam2", "canopy_height")
    parts = [one * two * height, one * two, one / two, *_of(data, *others)]
    return [*map(np.log, parts), *_of(data, "group")]


def _mesquite(columns: Columns, transform: Callable = np.log) -> Callable[[Data], Design]:
    return lambda data: _linear(transform(np.asarray(data["weight"], float)), columns(data))


def _nes(data: Data) -> Design:
    ages = [(np.asarray(data["age_discrete"]) == level).astype(float) for level in (2, 3, 4)]
    ideology, race, education, gender, income, party = _of(
        data, "real_ideo", "race_adj", "educ1", "gender", "income", "partyid7"
    )
    return _linear(party, [ideology, race, *ages, education, gender, income])


def _blr(data: Data) -> Design:
    x, y = _of(data, "X", "y")
    return Design(x, y, (0.0, 10.0), ("HalfNormal", 10.0))


def _same(outcome: np.ndarray) -> np.ndarray:
    return outcome


DESIGNS: dict[str, Callable[[Data], Design]] = {
    "arK-arK": _autoregression,
    "diamonds-diamonds": _diamonds,
    "earnings-earn_height": _earnings(lambda d: _of(d, "height"), _same),
    "earnings-log10earn_height": _earnings(lambda d: _of(d, "height"), np.log10),
    "earnings-logearn_height": _earnings(lambda d: _of(d, "height")),
    "earnings-logearn_height_male": _earnings(lambda d: _of(d, "height", "male")),
    "earnings-logearn_interaction_z": _earnings(_standardised_height),
    "earnings-logearn_logheight_male": _earnings(lambda d: [np.log(d["height"]), *_of(d, "male")]),
    "kidiq-kidscore_interaction": _kidiq(
        lambda d: _with_product(*_of(d, "mom_hs", "mom_iq")), HALF_CAUCHY
    ),
    "kidiq-kidscore_momhs": _kidiq(lambda d: _of(d, "mom_hs"), HALF_CAUCHY),
    "kidiq-kidscore_momhsiq": _kidiq(lambda d: _of(d, "mom_hs", "mom_iq"), HALF_CAUCHY),
    "kidiq_with_mom_work-kidscore_interaction_c": _kidiq(_centred),
    "kidiq_with_mom_work-kidscore_interaction_c2": _kidiq(_at_reference),
    "kidiq_with_mom_work-kidscore_mom_work": _kidiq(_work),
    "kilpisjarvi_mod-kilpisjarvi": _kilpisjarvi,
    "mesquite-logmesquite": _mesquite(lambda d: [*map(np.log, _bushes(d)), *_of(d, "group")]),
    "mesquite-logmesquite_logvas": _mesquite(lambda d: _volumes(d, "total_height", "density")),
    "mesquite-logmesquite_logvash": _mesquite(lambda d: _volumes(d, "total_height")),
    "mesquite-mesquite": _mesquite(lambda d: [*_bushes(d), *_of(d, "group")], _same),
    **{f"nes{year}-nes": _nes for year in (1972, 1976, 1980, 1984, 1988, 2000)},
    "sblrc-blr": _blr,
}
EIGHT_SCHOOLS = "eight_schools-eight_schools_noncentered"
