"""The pages of the documentation that are generated are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import supported_operations

    return supported_operations


def test_supported_operations_are_those_of_the_rule_tables(generator):
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page(), (
        "run python docs/supported_operations.py"
    )


def test_a_new_rule_changes_the_page(generator, monkeypatch):
    def rule(input):
        """Serve a new function."""

    before = generator.page()
    monkeypatch.setitem(generator.rules.RULES, test_a_new_rule_changes_the_page, rule)
    assert "A new function" in generator.page()
    assert "A new function" not in before
