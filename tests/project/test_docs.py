"""The pages of the documentation that are generated are up to date."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import supported_operations

    return supported_operations


def test_supported_operations_are_those_of_the_rule_tables(generator):
    for file, text in generator.pages().items():
        own = re.sub(r"## Tests: .*?(?=## )", "", text, flags=re.DOTALL)  # of an earlier test
        assert (DOCS / file).read_text(encoding="utf-8") == own, (
            "run python docs/supported_operations.py"
        )


@pytest.mark.parametrize(
    ("front_end", "operation", "file"),
    [
        ("pyro_moments", pytest.fixture, "supported_operations.md"),
        ("numpyro_moments", "new", "supported_operations_numpyro.md"),
    ],
)
def test_a_new_rule_changes_the_page(generator, monkeypatch, front_end, operation, file):
    def rule(input):
        """Serve a new function."""

    before = generator.pages()[file]
    rules = getattr(generator, front_end).rules
    monkeypatch.setitem(rules.table.RULES, operation, rule)
    assert "A new function" in generator.pages()[file]
    assert "A new function" not in before


def test_the_page_of_rule_books_is_that_of_the_books(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import rule_books

    text = (DOCS / "rule_books.md").read_text(encoding="utf-8")
    assert text == rule_books.page(), "run python docs/rule_books.py"
