"""What is raised for a file that cannot be read."""

from __future__ import annotations


class StoredFileError(ValueError):
    """A file that is damaged, foreign or too new, with the path, the cause and a remedy.

    Args:
        cause: what is wrong with the file.
        path: the file, where it is known.
        remedy: what the user can do about it.
    """

    def __init__(self, cause: str, *, path: object = "", remedy: str = "") -> None:
        self.cause, self.path, self.remedy = cause, str(path), remedy
        headline = f"{self.path}: {cause}" if self.path else cause
        super().__init__(f"{headline}\n  remedy: {remedy}" if remedy else headline)
