"""The error for a file that cannot be read."""

from __future__ import annotations


class StoredFileError(ValueError):
    """A file is damaged, foreign or too new; the message has path, cause and remedy.

    Args:
        cause: what is wrong with the file.
        path: the file; empty if it is not known.
        remedy: what the user can do about it.
    """

    def __init__(self, cause: str, *, path: object = "", remedy: str = "") -> None:
        self.cause, self.path, self.remedy = cause, str(path), remedy
        headline = f"{self.path}: {cause}" if self.path else cause
        super().__init__(f"{headline}\n  remedy: {remedy}" if remedy else headline)
