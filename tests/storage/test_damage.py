"""Damaged and foreign files are refused: path, cause and remedy are named, nothing is executed."""

import bisect
import gzip
import io
import json
import os
import pickle
import re
import tracemalloc

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from moment_inference.optimisation.storage.files import (
    FORMAT,
    KEY,
    StoredFileError,
    digest,
    read,
    write,
)

HEADER = {"versions": {"pyro-moments": "0.1"}, "numbers": [0.1, 1], "text": "é"}
ARRAYS = {
    "loc": np.array([[0.5, -1.5], [np.nan, 0.0]]),
    "scale": np.array([1, 2], np.float32),
    "step": np.array(7, np.int64),
    "on": np.array([True, False]),
    "none": np.zeros((0, 2)),
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("intact") / "file"
    write(path, HEADER, ARRAYS)
    return path.read_bytes()


def length_of(content):
    return int.from_bytes(content[:8], "little")


def container(header, data=b""):
    """A safetensors file by hand."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def recorded(text, **arrays):
    """A safetensors file with a text under the library's key."""
    return save(arrays, metadata={KEY: text if isinstance(text, str) else json.dumps(text)})


def record(header=HEADER, arrays=None, **changes):
    return {"format": FORMAT, "digest": digest(header, arrays or {}), "header": header, **changes}


def without(key):
    return {name: part for name, part in record().items() if name != key}


def claiming(dtype, shape, size):
    """Our record before an array as no array of ours is."""
    array = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
    return container({"__metadata__": {KEY: json.dumps(record())}, "x": array}, b"\1" * size)


class Marker:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def saved(save_to, *contents, **options):
    buffer = io.BytesIO()
    save_to(buffer, *contents, **options)
    return buffer.getvalue()


def by_torch(content, **options):
    return saved(lambda buffer: torch.save(content, buffer, **options))


MARKER = Marker("executed")  # in the working directory, which each test has of its own
INF, DEEP = 10**9, 100_000

# Each: the content, or what makes it of an intact file; and what the message says.
FILES = {
    "empty": (b"", "is empty"),
    "one byte": (b"\x10", "truncated"),
    "the length alone": (lambda intact: intact[:8], "truncated"),
    "cut in its header": (lambda intact: intact[:60], "truncated: its header"),
    "cut behind its header": (lambda intact: intact[: 8 + length_of(intact)], "truncated"),
    "cut in its data": (lambda intact: intact[:-5], "truncated or damaged"),
    "continued": (lambda intact: intact + b"\0", "truncated or damaged"),
    "twice": (lambda intact: intact * 2, "truncated or damaged"),
    "zeros": (bytes(4096), "is no safetensors file"),
    "random bytes": (np.random.default_rng(1).bytes(4096), "is no safetensors file"),
    "a header of 2^63 bytes": (b"\0" * 7 + b"\x80{}", "is no safetensors file"),
    "a header of 1 GB": (INF.to_bytes(8, "little") + b"{}", "is no safetensors file"),
    "a header of 99 MB": ((99 * 10**6).to_bytes(8, "little") + b"{}", "truncated: its header"),
    "text": (b"loc = 0.5\n" * 9, "is no safetensors file"),
    "JSON": (json.dumps(HEADER).encode(), "is text"),
    "a list in JSON": (b"[1, 2]", "is text"),
    **{
        f"a pickle of protocol {protocol}": (
            pickle.dumps(MARKER, protocol),
            "is a pickle" if protocol > 1 else "is no safetensors file",
        )
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "torch.save": (by_torch({"x": MARKER}), "zip archive, as torch.save"),
    "an old torch.save": (
        by_torch({"x": MARKER}, _use_new_zipfile_serialization=False),
        "is a pickle",
    ),
    "numpy.savez": (saved(np.savez, x=np.ones(2)), "numpy.savez"),
    "numpy.save": (saved(np.save, np.ones(2)), "numpy.save"),
    "numpy.save of objects": (saved(np.save, np.array([MARKER]), allow_pickle=True), "numpy.save"),
    "compressed": (lambda intact: gzip.compress(intact), "gzip"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
    "a header that is a list": (container(b"{[]}"), "truncated or damaged"),
    "a header that is no UTF-8": (container(b'{"\xff":1}'), "truncated or damaged"),
    "a deep header": (container(b'{"a":' + b"[" * DEEP), "truncated or damaged"),
    "somebody else's": (save({"x": np.ones(2)}), "of another program"),
    "somebody else's metadata": (save({}, metadata={"format": "pt"}), "of another program"),
    "nothing in it": (container({}), "of another program"),
    "metadata that are null": (container({"__metadata__": None}), "of another program"),
    "metadata that are a list": (container({"__metadata__": []}), "truncated or damaged"),
    "no JSON": (recorded("{'format': 1}"), "no JSON"),
    "no text": (recorded(""), "no JSON"),
    "Python": (recorded("__import__('os').mkdir('executed')"), "no JSON"),
    "a pickle as metadata": (recorded(pickle.dumps(MARKER, 0).decode()), "no JSON"),
    "deep JSON": (recorded("[" * DEEP + "]" * DEEP), "no JSON"),
    "a deep object": (recorded('{"a":' * DEEP + "1" + "}" * DEEP), "no JSON"),
    "an integer too long": (recorded("1" * 5000), "no JSON"),
    "a list as record": (recorded([1]), "no JSON object"),
    "null as record": (recorded("null"), "no JSON object"),
    "no format": (recorded(without("format")), "lack the version of the format"),
    "format as text": (recorded(record(format="1")), "lack the version of the format"),
    "format true": (recorded(record(format=True)), "lack the version of the format"),
    "format 0": (recorded(record(format=0)), "lack the version of the format"),
    "a newer format": (recorded({"format": FORMAT + 1}), r"(?s)newer version.*remedy: update"),
    "no digest": (recorded(without("digest")), "lack digest"),
    "digest a number": (recorded(record(digest=1)), "lack digest"),
    "no header": (recorded(without("header")), "lack header"),
    "header a list": (recorded(record(digest=None) | {"header": []}), "lack digest and header"),
    "no versions": (recorded(record({})), "lacks the versions"),
    "versions a list": (recorded(record({"versions": ["1"]})), "lacks the versions"),
    "versions of numbers": (recorded(record({"versions": {"a": 1}})), "lacks the versions"),
    "another digest": (recorded(record(digest="0" * 64)), "does not match its digest"),
    "another dtype": (lambda intact: intact.replace(b"I64", b"U64"), "does not match its digest"),
    "another shape": (lambda intact: intact.replace(b"[2,2]", b"[4,1]"), "does not match"),
    "another name": (lambda intact: intact.replace(b'"loc"', b'"lac"'), "does not match"),
    "an array more": (recorded(record(), x=np.ones(1)), "does not match its digest"),
    "an array less": (recorded(record(arrays=ARRAYS)), "does not match its digest"),
    "float8": (claiming("F8_E4M3", [8], 8), r"array 'x' \(F8_E4M3\) cannot be read"),
    "too many axes": (claiming("F32", [1] * 65, 4), "array 'x' .* cannot be read"),
    "axes beyond memory": (claiming("F64", [0, 2**40, 2**40], 0), "truncated|cannot be read"),
    "an axis beyond 64 bits": (claiming("F64", [0, 2**64 - 1], 0), "cannot be read"),
    "more elements than numbers": (claiming("F64", [2**62, 2**62], 8), "truncated or damaged"),
    "elements that are missing": (claiming("F64", [10**9], 8), "truncated or damaged"),
    "an unknown dtype": (claiming("F1024", [1], 8), "truncated or damaged"),
}


@pytest.mark.parametrize("name", FILES)
def test_damaged_and_foreign_files_are_refused(tmp_path, monkeypatch, intact, name):
    monkeypatch.chdir(tmp_path)
    content, message = FILES[name]
    path = tmp_path / "given"
    path.write_bytes(content(intact) if callable(content) else content)
    with pytest.raises(StoredFileError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert re.search(r"\n  remedy: \w+", str(caught.value))
    assert os.listdir(tmp_path) == ["given"]  # no marker


def test_the_marker_can_be_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(MARKER)).close()
    assert os.listdir(tmp_path) == ["executed"]


def test_folders_and_pipes_are_refused(tmp_path):
    with pytest.raises(StoredFileError, match="is a folder"):
        read(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StoredFileError, match="is no regular file"):
            read(tmp_path / "pipe")


@pytest.mark.parametrize(
    "name", ["a header of 2^63 bytes", "a header of 1 GB", "a header of 99 MB"]
)
def test_what_a_file_claims_takes_no_memory(tmp_path, name):
    (tmp_path / "given").write_bytes(FILES[name][0])
    tracemalloc.start()
    with pytest.raises(StoredFileError):
        read(tmp_path / "given")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10**6


def is_read(text):
    try:
        json.loads(text)
    except RecursionError:
        return False
    return True


def test_no_depth_escapes(tmp_path):
    """Near Python's limit JSON may be read and yet be too deep to be written for the digest."""
    path, depths = tmp_path / "given", range(1, DEEP)
    deepest = bisect.bisect(depths, 0, key=lambda depth: not is_read("[" * depth + "]" * depth))
    for depth in range(deepest - 50, deepest + 10):
        header = '{"versions":{},"a":' + "[" * depth + "]" * depth + "}"
        path.write_bytes(recorded(f'{{"format":1,"digest":"","header":{header}}}'))
        with pytest.raises(StoredFileError, match=r"no JSON|does not match"):
            read(path)


def test_the_cause_is_kept(tmp_path):
    (tmp_path / "given").write_bytes(b"")
    with pytest.raises(StoredFileError) as caught:
        read(tmp_path / "given")
    assert type(caught.value.__cause__).__name__ == "SafetensorError"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.path) == (str(caught.value), str(tmp_path / "given"))


def content_of(path):
    header, arrays = read(path)
    parts = [(name, x.dtype, x.shape, x.tobytes()) for name, x in sorted(arrays.items())]
    return repr(header), parts


def test_a_flipped_byte_is_found_or_changes_nothing(tmp_path, intact):
    rng = np.random.default_rng(2)
    path = tmp_path / "given"
    path.write_bytes(intact)
    before, refused = content_of(path), 0
    data = range(8 + length_of(intact), len(intact))
    for place in [*range(8), *data, *rng.choice(range(8, data[0]), 200, replace=False)]:
        flipped = bytearray(intact)
        flipped[place] ^= rng.choice([1, 32, 128, rng.integers(1, 256)])
        path.write_bytes(flipped)
        try:
            assert content_of(path) == before
        except StoredFileError:
            refused += 1
            continue
        assert place not in data
    assert refused > 200
