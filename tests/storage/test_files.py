"""What is written comes back bit for bit; a failure leaves the file of before; no odd content."""

import errno
import math
import os
import stat
import sys

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from moment_inference.optimisation.storage import files
from moment_inference.optimisation.storage.files import DTYPES, StoredFileError, read, write

HEADER = {"versions": {"pyro-moments": "0.1"}, "guide": {"kind": "mean field", "sites": ["a", "θ"]}}
rng = np.random.default_rng(0)


def bits_of(dtype, shape):
    """Any bits at all: NaN with payloads, subnormal numbers, infinities; a bool is 0 or 1."""
    size = math.prod(shape) * dtype.itemsize
    raw = rng.integers(0, 2 if dtype.kind == "b" else 256, size=size, dtype=np.uint8)
    return raw.view(dtype).reshape(shape)


def assert_same(ours, theirs):
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert ours.tobytes() == theirs.tobytes()


SHAPES = [(), (0,), (3, 0, 2), (1,), (7,), (4, 3)]


def named(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_arrays_come_back_bit_for_bit(tmp_path, name):
    arrays = {str(shape): bits_of(named(name), shape) for shape in SHAPES}
    write(tmp_path / "a", HEADER, arrays)
    header, found = read(tmp_path / "a")
    assert header == HEADER
    assert found.keys() == arrays.keys()
    for key, array in arrays.items():
        assert_same(found[key], array)
        assert found[key].flags.writeable


def test_a_payload_of_nan_survives(tmp_path):
    bits = np.array([0x7FF8000000000123, 0xFFF4000000000001], np.uint64)  # quiet, signalling
    write(tmp_path / "a", HEADER, {"nan": bits.view(np.float64)})
    np.testing.assert_array_equal(read(tmp_path / "a")[1]["nan"].view(np.uint64), bits)


LAYOUTS = {
    "transposed": lambda x: x.T,
    "every second": lambda x: x[::2, ::2],
    "backwards": lambda x: x[::-1, ::-1],
    "of Fortran": np.asfortranarray,
    "broadcast": lambda x: np.broadcast_to(x[0], (5, 6)),
    "big-endian": lambda x: x.astype(">f8"),
    "read-only": lambda x: np.frombuffer(x.tobytes()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_any_layout_come_back(tmp_path, layout):
    array = LAYOUTS[layout](rng.normal(size=(4, 6)))
    write(tmp_path / "a", HEADER, {"x": array})
    assert_same(read(tmp_path / "a")[1]["x"], array.astype("<f8", order="C"))


def test_other_programs_can_read_the_arrays(tmp_path):
    write(tmp_path / "a", HEADER, {"x": np.arange(3.0)})
    np.testing.assert_array_equal(load_file(tmp_path / "a")["x"], [0, 1, 2])


@pytest.mark.parametrize("name", ["", "a/b", "../a", "θ", "a\0b", "x" * 1000])
def test_names_are_only_names(tmp_path, name):
    write(str(tmp_path / "a"), HEADER, {name: np.ones(1)})
    assert list(read(str(tmp_path / "a"))[1]) == [name]
    assert os.listdir(tmp_path) == ["a"]


def test_headers_come_back(tmp_path):
    """Infinities and NaN too: Python's JSON spells them, and reads them back."""
    numbers = [0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan, 2**200, True, None]
    header = {**HEADER, "numbers": numbers, "text": "\ud800\0\"\\'ü", "": {}}
    write(tmp_path / "a", header, {})
    found, arrays = read(tmp_path / "a")
    assert repr(found["numbers"]) == repr(numbers)
    assert (found["text"], found[""], arrays) == (header["text"], {}, {})


def itself():
    header = dict(HEADER)
    header["again"] = header
    return header


REFUSED = {
    "complex": (HEADER, {"x": np.ones(1, complex)}, TypeError, "'x' is of dtype complex128"),
    "float8": (HEADER, {"x": np.ones(1, ml_dtypes.float8_e5m2)}, TypeError, "float8_e5m2"),
    "long": (HEADER, {"x": np.ones(1, np.longdouble)}, TypeError, "of dtype (float128|longdouble)"),
    "objects": (HEADER, {"x": np.array([None])}, TypeError, "of dtype object"),
    "text": (HEADER, {"x": np.array(["a"])}, TypeError, "of dtype str"),
    "times": (HEADER, {"x": np.zeros(1, "M8[s]")}, TypeError, "of dtype datetime64"),
    "a list": (HEADER, {"x": [1.0]}, TypeError, "'x' is of type list, and no NumPy array"),
    "a scalar": (HEADER, {"x": np.float64(1)}, TypeError, "'x' is of type float64"),
    "a name that is an int": (
        HEADER,
        {1: np.ones(1)},
        TypeError,
        "name 1 of an array is of type int",
    ),
    "the name of metadata": (HEADER, {"__metadata__": np.ones(1)}, ValueError, "'__metadata__'"),
    "a surrogate": (HEADER, {"\ud800": np.ones(1)}, ValueError, "under the name"),
    "no versions": ({}, {}, ValueError, r"header\['versions'\] has to be a dict"),
    "versions of numbers": ({"versions": {"a": 1}}, {}, ValueError, r"header\['versions'\]"),
    "no dict": ([], {}, TypeError, "the header is of type list"),
    "a tuple": ({**HEADER, "a": [(1,)]}, {}, TypeError, r"header\['a'\]\[0\] is of type tuple"),
    "an int as key": ({**HEADER, "a": {1: 2}}, {}, TypeError, r"header\['a'\] has the key 1"),
    "a scalar in it": ({**HEADER, "a": np.float64(1)}, {}, TypeError, "is of type float64"),
    "itself": (itself(), {}, ValueError, "contains itself"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_is_refused_and_nothing_is_written(tmp_path, name):
    header, arrays, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        write(tmp_path / "a", header, arrays)
    assert os.listdir(tmp_path) == []


def fail(*arguments, **options):
    raise OSError(errno.ENOSPC, "the disk is full")


def interrupt(*arguments, **options):
    raise KeyboardInterrupt


@pytest.mark.parametrize("failure", [fail, interrupt])
@pytest.mark.parametrize("place", ["os.replace", "os.fsync", "save_file", "Path.chmod"])
@pytest.mark.parametrize("before", [True, False])
def test_a_failure_leaves_the_file_of_before(tmp_path, monkeypatch, place, failure, before):
    path = tmp_path / "a"
    if before:
        write(path, HEADER, {"x": np.zeros(3)})
    content = path.read_bytes() if before else None
    monkeypatch.setattr(f"moment_inference.optimisation.storage.files.{place}", failure)
    with pytest.raises((OSError, KeyboardInterrupt)):
        write(path, HEADER, {"x": np.ones(3)})
    assert os.listdir(tmp_path) == (["a"] if before else [])
    assert not before or path.read_bytes() == content


def test_a_failure_in_the_middle_of_the_bytes_leaves_the_file_of_before(tmp_path, monkeypatch):
    write(tmp_path / "a", HEADER, {"x": np.zeros(3)})

    def half(arrays, path, metadata):
        path.write_bytes(b"half")
        raise files.SafetensorError("I/O error: no space left")

    monkeypatch.setattr(files, "save_file", half)
    with pytest.raises(OSError, match=r"a: could not be written: .*no space left"):
        write(tmp_path / "a", HEADER, {"x": np.ones(3)})
    assert os.listdir(tmp_path) == ["a"]
    np.testing.assert_array_equal(read(tmp_path / "a")[1]["x"], np.zeros(3))


def test_a_folder_that_cannot_be_flushed_does_not_matter(tmp_path, monkeypatch):
    flush, flushed = os.fsync, []

    def of_files_only(descriptor):
        flushed.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        return fail() if flushed[-1] else flush(descriptor)

    monkeypatch.setattr("os.fsync", of_files_only)
    write(tmp_path / "a", HEADER, {"x": np.ones(3)})
    assert flushed == [False, True]  # the bytes before the name
    assert read(tmp_path / "a")[1]["x"].sum() == 3


@pytest.mark.skipif(sys.platform == "win32", reason="permissions and links of POSIX")
def test_permissions_and_links_are_kept(tmp_path):
    write(tmp_path / "new", HEADER, {})
    (tmp_path / "plain").touch()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    (tmp_path / "link").symlink_to("new")
    write(tmp_path / "link", HEADER, {"x": np.ones(1)})
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert list(read(tmp_path / "new")[1]) == ["x"]


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write(tmp_path / "nowhere" / "a", HEADER, {})


def test_bfloat16_asks_for_what_it_needs(tmp_path, monkeypatch):
    write(tmp_path / "a", HEADER, {"x": np.ones(2, ml_dtypes.bfloat16)})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(StoredFileError, match=r"(?s)'x' \(BF16\).*pip install ml_dtypes"):
        read(tmp_path / "a")
