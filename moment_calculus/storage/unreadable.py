"""Find out what a file is that safetensors cannot read: truncated, damaged or another format."""

from __future__ import annotations

import os

# The largest header that safetensors reads.
LONGEST_HEADER = 100_000_000

SAVE_AGAIN = "save it again, or fetch an intact copy"
OWN_FORMAT = "name a file that this library saved; other formats are not converted"

# First bytes, cause and remedy. The oldest pickles have no magic bytes: "no safetensors
# file".
KINDS = (
    (b"PK\x03\x04", "is a zip archive, as torch.save and numpy.savez write", OWN_FORMAT),
    (b"\x93NUMPY", "is an array of numpy.save", OWN_FORMAT),
    (b"\x89HDF", "is an HDF5 file", OWN_FORMAT),
    (b"\x1f\x8b", "is compressed by gzip", "decompress it first"),
    *(
        (
            bytes([0x80, protocol]),
            "is a pickle, which could run code and is never loaded",
            OWN_FORMAT,
        )
        for protocol in (2, 3, 4, 5)
    ),
    (b"{", "is text (JSON, by its first letter) and no safetensors file", OWN_FORMAT),
    (b"[", "is text (JSON, by its first letter) and no safetensors file", OWN_FORMAT),
)


def diagnosis(path: str | os.PathLike[str], error: Exception) -> tuple[str, str]:
    """Return the cause and the remedy for a file on which safetensors raised an error."""
    with open(path, "rb") as file:
        start, size = file.read(9), os.fstat(file.fileno()).st_size
    if size == 0:
        return "is empty", SAVE_AGAIN
    length = int.from_bytes(start[:8], "little")
    if start[8:] == b"{" and length <= LONGEST_HEADER:
        return _damage(length, size, error), SAVE_AGAIN
    known = ((cause, remedy) for magic, cause, remedy in KINDS if start.startswith(magic))
    unknown = f"is no safetensors file, or truncated or damaged at its start ({error})"
    return next(known, (unknown, OWN_FORMAT))


def _damage(length: int, size: int, error: Exception) -> str:
    if 8 + length > size:
        return f"is truncated: its header of {length} bytes ends behind its end"
    return f"is truncated or damaged: {error}"
