"""Trees come back as they were, and a malformed skeleton is refused as a stored file."""

import json
import math
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moment_inference.optimisation.storage.files import StoredFileError, pack, unpack
from moment_inference.optimisation.storage.trainings import StoredTraining

Pair = namedtuple("Pair", "loc scale")


def to_array(leaf):
    return leaf if isinstance(leaf, np.ndarray) else None


def there_and_back(tree):
    skeleton, arrays = pack(tree, to_array)
    return unpack(json.loads(json.dumps(skeleton)), arrays)


def same(ours, theirs):
    """Equality that tells 1, 1.0 and True apart, and 0.0 from -0.0."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert list(map(repr, ours)) == list(map(repr, theirs))
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    elif isinstance(ours, np.ndarray):
        assert ours is theirs
    else:
        assert repr(ours) == repr(theirs)


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())  # lone surrogates too
    | st.builds(lambda size: np.arange(size), st.integers(0, 3))
)
keys = st.text(st.sampled_from("ab/'1\ud800")) | st.integers(-2, 20)
trees = st.recursive(
    leaves,
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.lists(parts, max_size=4).map(tuple)
        | st.dictionaries(keys, parts, max_size=4)
    ),
    max_leaves=12,
)


@given(trees)
def test_trees_come_back_as_they_were(tree):
    same(there_and_back(tree), tree)


FLOATS = [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.pi, math.inf, -math.inf, math.nan]


def test_numbers_come_back_bit_for_bit():
    tree = {"floats": tuple(FLOATS), "ints": [2**200, -(2**63), 0, True], 0: "0", "0": 0}
    same(there_and_back(tree), tree)


def test_names_resemble_paths_and_differ():
    one = np.zeros(1)
    names = pack({"a": {"b": one, 1: one, "1": one}, "a/b": [one], "": one}, to_array)[1]
    assert list(names) == ["a/b", "a/1", "a/1'", "a/b/0", "value"]
    assert list(pack(one, to_array)[1]) == ["value"]
    assert list(pack({"\ud800": one}, to_array)[1]) == ["\\ud800"]  # no UTF-8 in a file
    assert list(pack({"__metadata__": one}, to_array)[1]) == ["__metadata__'"]


UNKNOWN = {
    "an object": ({"a": [0, object()]}, r"tree\['a'\]\[1\] is of type object"),
    "a set": ((set(),), r"tree\[0\] is of type set"),
    "a complex number": (1j, "tree is of type complex"),
    "bytes": ([b"1"], "of type bytes"),
    "a scalar of NumPy": ({"a": np.float64(1)}, r"tree\['a'\] is of type float64"),
    "a named tuple": ([Pair(0, 1)], r"tree\[0\] is of type Pair"),
    "an ordered dict": ([OrderedDict()], r"tree\[0\] is of type OrderedDict"),
    "a key that is a tuple": (
        {"a": {(0, 1): 2}},
        r"tree\['a'\] has the key \(0, 1\) of type tuple",
    ),
    "a key that is a bool": ({True: 2}, "has the key True of type bool"),
    "a key that is None": ({None: 2}, "has the key None of type NoneType"),
}


@pytest.mark.parametrize("answer", [None, NotImplemented])
@pytest.mark.parametrize("name", UNKNOWN)
def test_other_leaves_and_keys_are_refused(name, answer):
    tree, message = UNKNOWN[name]
    with pytest.raises(TypeError, match=message):
        pack(tree, lambda leaf: answer)


def nested(depth):
    tree = []
    for _ in range(depth):
        tree = [tree]
    return tree


def test_a_tree_that_contains_itself_is_refused():
    tree = {"a": []}
    tree["a"].append(tree)
    with pytest.raises(ValueError, match=r"tree\['a'\]\[0\].*contains itself"):
        pack(tree, to_array)
    with pytest.raises(ValueError, match="deeper than 100"):
        pack(nested(101), to_array)
    same(there_and_back(nested(100)), nested(100))


def test_containers_of_libraries_are_stored_as_plain_ones(tmp_path):
    """The states of optimisers are named tuples, with scalars of NumPy in them."""
    training = StoredTraining("pyro_moments", ["numpy"], object(), ({}, {}), to_array)
    state = Pair(np.float64(1.5), OrderedDict(a=[np.int64(2), Pair(None, ())]))
    training.write(tmp_path / "a", {"parameters": {}, "trainer": state}, {})
    found = training.read(tmp_path / "a", require_checkpoint=False)["trainer"]
    same(found, (1.5, {"a": [2, (None, ())]}))


MALFORMED = {
    "an empty object": {},
    "two keys": {"tuple": [], "dict": []},
    "an unknown tag": {"set": []},
    "a tag that is no text": {1: []},
    "a tuple of no list": {"tuple": 3},
    "a dict of no list": {"dict": {"a": 1}},
    "an item of one": {"dict": [["a"]]},
    "an item of three": {"dict": [["a", 1, 2]]},
    "an item that is text": {"dict": ["ab"]},
    "a key that is a list": {"dict": [[[], 1]]},
    "a key that is a float": {"dict": [[1.5, 1]]},
    "a key that is a bool": {"dict": [[True, 1]]},
    "a key twice": {"dict": [["a", 1], ["a", 2]]},
    "an array that is not there": {"array": "b"},
    "an array without a name": {"array": None},
    "an array by a list": {"array": ["a"]},
    "below": {"tuple": [{"dict": [["a", [{"array": "b"}]]]}]},
    "no JSON": {"tuple": [b"1"]},
    "too deep": nested(101),
    "far too deep": nested(100_000),
    "far too deep for a message": {"set": nested(100_000)},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_skeletons_are_refused(name):
    with pytest.raises(StoredFileError, match=r"(?s)a\.file: its tree is malformed: .*remedy: "):
        unpack(MALFORMED[name], {"a": np.zeros(1)}, path="a.file")
