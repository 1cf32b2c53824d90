"""The result of a diagnosis: each check with its verdict, its meaning and a remedy."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from moment_inference.display import aligned

WIDTH = 100
SERIES = 4  # sites of one numbered series from which on they share a line


class Verdict(Enum):
    """How serious a finding is."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Args:
        check: name of the check.
        value: what was measured, as text.
        verdict: how serious it is.
        meaning: what it means, in words.
        remedy: what to do; empty if nothing has to be done.
    """

    check: str
    value: str
    verdict: Verdict
    meaning: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All findings about a trained guide.

    Args:
        subject: title: the guide, its number of coordinates and the framework.
        findings: in the order of the checks.
    """

    subject: str
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are bad or doubtful."""
        kinds = (Verdict.BAD, Verdict.DOUBTFUL)
        return tuple(finding for finding in self.findings if finding.verdict in kinds)

    @property
    def is_good(self) -> bool:
        """Whether no finding is bad."""
        return all(finding.verdict is not Verdict.BAD for finding in self.findings)

    def __getitem__(self, check: str) -> Finding:
        """Return the finding of a check; raise KeyError with the names of all checks."""
        by_name = {finding.check: finding for finding in self.findings}
        if check not in by_name:
            raise KeyError(f"{check!r} was not looked at; there are {', '.join(by_name)}")
        return by_name[check]

    def __str__(self) -> str:
        """Return a table of all findings, and in words those that are not good.

        Sites y_0 … y_T of time steps share a line, which is that of the worst.
        """
        findings = _by_series(self.findings)
        rows = aligned([one.check, one.value, one.verdict.value] for one in findings)
        bad = [finding for finding in findings if finding.verdict is not Verdict.GOOD]
        words = list(map(_paragraph, bad)) or ["Nothing speaks against it."]
        return "\n".join([self.subject, "", *rows, "", *words])


_NUMBERED = re.compile(r"(?P<series>.*?\D)(?P<number>\d+)$")
_WORST = Verdict.GOOD, Verdict.UNKNOWN, Verdict.DOUBTFUL, Verdict.BAD  # in this order


def _by_series(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding for neighbours of one check that are of sites of one numbered series."""

    def series(finding: Finding) -> str:
        known = _NUMBERED.match(finding.check)
        return known["series"] if known else finding.check

    shown: list[Finding] = []
    for _, neighbours in itertools.groupby(findings, key=series):
        group = list(neighbours)
        shown += group if len(group) < SERIES else [_worst_of(group)]
    return shown


def _worst_of(group: list[Finding]) -> Finding:
    worst = max(group, key=lambda finding: _WORST.index(finding.verdict))
    last, name = (one.check.split()[-1] for one in (group[-1], worst))
    return replace(
        worst,
        check=f"{group[0].check} … {last}",
        value=f"{len(group)} sites; {name}: {worst.value}",
    )


def _paragraph(finding: Finding) -> str:
    remedy = f" → {finding.remedy}" if finding.remedy else ""
    text = f"{finding.check} ({finding.verdict.value}): {finding.meaning}{remedy}"
    return textwrap.fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ")
