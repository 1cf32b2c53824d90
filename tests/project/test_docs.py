"""The pages of the documentation that are generated say what is so; at a release, all of it."""

import re
from pathlib import Path

import pytest

from tests.project.lagging import is_released, is_up_to_date, may_lag

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import supported_operations

    return supported_operations


def test_supported_operations_are_those_of_the_rule_tables(generator):
    for file, text in generator.pages().items():
        own = re.sub(r"## Tests: .*?(?=## )", "", text, flags=re.DOTALL)  # of an earlier test
        page = (DOCS / file).read_text(encoding="utf-8")
        assert is_up_to_date(page, own, may_lag()), "run python docs/supported_operations.py"


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
    assert is_up_to_date(text, rule_books.page(), may_lag()), "run python docs/rule_books.py"


PAGE = """# Served

| functions | what they are | predicted |
|---|---|---|
| `f`, `g` | a `|` b | yes |
"""


@pytest.mark.parametrize(
    ("generated", "holds"),
    [
        (PAGE, True),
        (PAGE + "| `new` | c | |\n", True),
        (PAGE.replace("`g`", "`g`, `h`"), True),
        (PAGE.replace("`f`, ", ""), False),
        (PAGE.replace("b | yes", "c | yes"), False),
        (PAGE.replace("| yes", "| "), False),
        (PAGE.replace("# Served", "# Refused"), False),
    ],
)
def test_a_page_that_lags_says_nothing_false(generated, holds):
    assert is_up_to_date(PAGE, generated, lag=True) == holds
    assert is_up_to_date(PAGE, generated, lag=False) == (generated == PAGE)


def test_pages_of_a_release_do_not_lag():
    assert not is_released("# Changelog\n\n## [Unreleased]\n")
    assert is_released("# Changelog\n\n## [0.2.0] - 2025-01-01\n")
