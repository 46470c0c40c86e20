"""Keys as bytes: equal keys have equal bytes, different ones do not, and order is kept."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.common.types import Row, RowKind
from millpond.state.ordered.key_bytes import after, decode_key, encode_key, is_exact

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


@dataclass(frozen=True)
class User:
    name: str
    number: int


ATOMS = (
    st.none()
    | st.integers()
    | st.integers(-3, 3)
    | st.text()
    | st.sampled_from(["", "\x00", "\x00\xff", "a\x00", "a", "\ud800"])
    | st.binary(max_size=4)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.dates()
    | st.timedeltas()
    | st.builds(User, st.text(max_size=2), st.integers(-2, 2))
    | st.sampled_from([Colour.RED, Level.LOW, uuid.UUID(int=1)])
)
KEYS = st.recursive(
    ATOMS,
    lambda inner: (
        st.tuples(inner, inner) | st.builds(Point, inner, inner) | st.frozensets(inner, max_size=3)
    ),
    max_leaves=4,
)


UUID = uuid.UUID("dd7027b8-e265-11f1-811c-02fc00000001")
ODD = [
    *(3, numpy.int64(3), numpy.int32(4), numpy.float64(3.0), numpy.bool_(True), numpy.str_("x")),
    *("x", True, UUID, uuid.UUID(str(UUID))),
    *(Row(1), Row(2), Row(a=1), Row(b=1), Row(a=1, b=2), (1,)),
    Row.of_kind(RowKind.DELETE, 1),
]


@pytest.mark.parametrize("first", ODD, ids=repr)
@pytest.mark.parametrize("second", ODD, ids=repr)
def test_odd_keys_are_one_key_if_their_bytes_are_equal(first: Any, second: Any) -> None:
    assert (encode_key(first) == encode_key(second)) == (len({first, second}) == 1)


@settings(max_examples=500)
@given(KEYS, KEYS)
def test_bytes_are_equal_exactly_if_keys_are(first: Any, second: Any) -> None:
    assert (encode_key(first) == encode_key(second)) == (first == second)


@settings(max_examples=500)
@given(KEYS, st.binary(max_size=5))
def test_exact_keys_come_back_with_their_types(key: Any, rest: bytes) -> None:
    if is_exact(key):
        found, end = decode_key(b"xx" + encode_key(key) + rest, 2)
        assert found == key
        assert repr(found) == repr(key)
        assert end == 2 + len(encode_key(key))


@settings(max_examples=500)
@given(KEYS, KEYS)
@example("", "\x00")
@example("\x00", "")
@example(b"", b"\x00")
def test_no_key_begins_with_another(first: Any, second: Any) -> None:
    one, other = encode_key(first), encode_key(second)
    assert one == other or not one.startswith(other)
    assert one < after(one)
    assert one == other or not one < other < after(one)


@pytest.mark.parametrize(
    "values",
    [st.integers(), st.text(), st.binary(), st.tuples(st.integers(), st.text())],
    ids=["integers", "strings", "bytes", "tuples"],
)
def test_natural_order_is_kept(values: Any) -> None:
    @given(st.lists(values))
    def check(keys: list[Any]) -> None:
        assert sorted(keys, key=encode_key) == sorted(keys)

    check()


def test_equal_instants_are_one_key() -> None:
    east = datetime.timezone(datetime.timedelta(hours=2))
    there = datetime.datetime(2026, 1, 1, 12, tzinfo=east)
    assert encode_key(there) == encode_key(there.astimezone(datetime.UTC))
    assert encode_key(datetime.date(2026, 1, 1)) != encode_key(datetime.datetime(2026, 1, 1))


def test_objects_that_share_parts_have_the_bytes_of_those_that_do_not() -> None:
    word = "".join(["so", "me"])
    again = "".join(["so", "me"])
    assert word is not again
    shared, apart = frozenset({(word, word)}), frozenset({(word, again)})
    assert encode_key(shared) == encode_key(apart)
    one, other = decimal.Decimal("0.1"), decimal.Decimal("0.10")
    assert encode_key(one) == encode_key(other)
