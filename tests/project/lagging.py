"""Generated pages may lag behind the code until a release, but say nothing that is false."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def is_released(changelog: str) -> bool:
    """Whether a changelog has no section of what is not released."""
    return "## [Unreleased]" not in changelog


def may_lag() -> bool:
    """Whether pages may lag: not at a release."""
    return not is_released((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def facts(page: str) -> set[tuple[str, ...]]:
    """The lines of a page, and of each row of a table its names with the cells of each column."""
    found, header = set(), None
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            found.add((line,))
            header = None
        elif header is None:
            header = cells
        elif not line.startswith("|--"):
            for name in cells[0].split(", "):
                found |= {(name, *one) for one in zip(header[1:], cells[1:], strict=True)}
    return found


def is_up_to_date(page: str, generated: str, lag: bool) -> bool:
    """Whether a page is what is generated; if it may lag, whether all of it still holds."""
    return facts(page) <= facts(generated) if lag else page == generated
