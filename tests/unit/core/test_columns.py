"""Columns give back exactly what went in, whatever it is; timers against an obvious model."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.core.columns import column_of, decode_list, encode_list

ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.just("a\x1fb"),
)
COLUMNS = st.one_of(
    st.lists(ATOMS),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1)),
    st.lists(st.sampled_from(["ad-1", "ad-2", ""]), max_size=300),
    st.lists(st.tuples(st.text(max_size=3), st.integers(0, 5), st.none())),
    st.lists(st.tuples(st.tuples(st.integers()), st.booleans())),
    st.lists(st.one_of(st.tuples(), st.tuples(st.integers()))),
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of equal types all the way down: True is not 1 here."""
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@settings(max_examples=500, deadline=None)
@given(COLUMNS)
def test_list_comes_back_as_it_was(values: list[Any]) -> None:
    back = decode_list(pickle.loads(pickle.dumps(encode_list(values))))
    assert len(back) == len(values)
    assert all(map(same, back, values))


@pytest.mark.parametrize(
    ("values", "tag"),
    [
        ([1, 2, 3], "I"),
        ([-(1 << 63), (1 << 63) - 1], "I"),
        ([1 << 63, 0], "O"),
        ([7, 7, 7], "C"),
        ([1.5, 2.0], "F"),
        (["x", "y"], "S"),
        (["x", "y"] * 50, "D"),
        (["\ud800", "y"], "O"),
        ([("x", 1), ("y", 2)], "T"),
        ([None, None], "C"),
        ([1, "x"], "O"),
        ([[1], [2]], "O"),
    ],
    ids=repr,
)
def test_narrowest_column_is_taken(values: list[Any], tag: str) -> None:
    assert column_of(values).encode()[0] == tag


def test_short_lists_are_not_packed() -> None:
    assert encode_list([1, 2, 3]) == ("O", [1, 2, 3])
    assert encode_list(list(range(100)))[0] == "I"
