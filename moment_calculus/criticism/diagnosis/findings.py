"""The result of a diagnosis: each check with its verdict, its meaning and a remedy."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from enum import Enum

from moment_calculus.criticism.display import aligned

WIDTH = 100


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
        """Return a table of all findings, and in words those that are not good."""
        rows = aligned(
            [finding.check, finding.value, finding.verdict.value] for finding in self.findings
        )
        bad = [finding for finding in self.findings if finding.verdict is not Verdict.GOOD]
        words = list(map(_paragraph, bad)) or ["Nothing speaks against it."]
        return "\n".join([self.subject, "", *rows, "", *words])


def _paragraph(finding: Finding) -> str:
    remedy = f" → {finding.remedy}" if finding.remedy else ""
    text = f"{finding.check} ({finding.verdict.value}): {finding.meaning}{remedy}"
    return textwrap.fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ")
