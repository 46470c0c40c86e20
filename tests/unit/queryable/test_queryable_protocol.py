"""What clients and slots say to each other: layout, limits, keys and values as JSON (O6)."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
import uuid
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.common import Row, Types
from millpond.common.time import Instant
from millpond.common.typeinfo import to_type_info
from millpond.core.key_groups import stable_hash
from millpond.queryable.json_codec import (
    NotJsonError,
    json_of_text,
    key_from_json,
    key_to_json,
    value_from_json,
    value_to_json,
)
from millpond.queryable.protocol import (
    HEADER_BYTES,
    MAGIC,
    MAX_REQUEST_BYTES,
    Decoder,
    Message,
    MessageKind,
    ProtocolError,
    encode,
)
from millpond.state.types.schemas import schema_of

GOLDEN = Path(__file__).parents[1] / "golden" / "look-ups.v1.bin"
MESSAGES = [
    Message(MessageKind.HELLO, 1, {"token": "5ec2e7"}),
    Message(MessageKind.WELCOME, 1, {"generation": 3, "partition": 0, "partitions": 2}),
    Message(MessageKind.GET, 2, {"state": "counts", "keys": ["ann", "bob"]}),
    Message(MessageKind.GET, 3, {"state": "views", "keys": [[1, "é"]], "entry": 7}),
    Message(MessageKind.ANSWER, 2, {"epoch": 41, "results": [[0, 12], [1, None]]}),
    Message(MessageKind.ANSWER, 3, {"epoch": 41, "results": [[2, "not loaded"]]}),
    Message(MessageKind.REFUSED, 0, {"reason": "too large"}),
]


def test_layout_is_as_documented_and_stays_so() -> None:
    """A change of the layout needs a new version and a new golden file."""
    data = b"".join(encode(*message) for message in MESSAGES)
    assert data == GOLDEN.read_bytes()
    assert data[4:6] == MAGIC


@given(st.lists(st.integers(1, 40), min_size=1))
def test_messages_come_out_whole_however_bytes_are_cut(cuts: list[int]) -> None:
    data = GOLDEN.read_bytes()
    decoder, found = Decoder(MAX_REQUEST_BYTES), []
    at, number = 0, 0
    while at < len(data):
        size = cuts[number % len(cuts)]
        decoder.feed(data[at : at + size])
        at, number = at + size, number + 1
        while (message := decoder.next()) is not None:
            found.append(message)
    assert found == MESSAGES


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not Millpond's protocol"),
        (b"\x10\x00\x00\x00MQ\x02\x01\x01\x00\x00\x00{}      ", "version 2 is not known"),
        (b"\xff\xff\xff\xffMQ\x01\x01\x01\x00\x00\x00", "bytes; at most 100"),
        (b"\x00\x00\x00\x00MQ\x01\x01\x01\x00\x00\x00", "bytes; at most"),
        (b"\x0a\x00\x00\x00MQ\x01\x01\x01\x00\x00\x00{]", "cannot be read"),
        (b"\x0a\x00\x00\x00MQ\x01\x63\x01\x00\x00\x00{}", "cannot be read"),
        (b"\x0a\x00\x00\x00MQ\x01\x01\x01\x00\x00\x00\xff\xff", "cannot be read"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, problem: str) -> None:
    decoder = Decoder(100)
    decoder.feed(data)
    with pytest.raises(ProtocolError, match=problem):
        decoder.next()


def test_deeply_nested_json_is_refused_and_does_no_harm() -> None:
    payload = b"[" * 50_000
    decoder = Decoder(1 << 20)
    head = (len(payload) + HEADER_BYTES - 4).to_bytes(4, "little")
    decoder.feed(head + b"MQ\x01\x03\x01\x00\x00\x00" + payload)
    with pytest.raises(ProtocolError):
        decoder.next()


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


@dataclass(frozen=True)
class Place:
    city: str
    number: int


Pair = namedtuple("Pair", "a b")
DAY = datetime.date(2026, 11, 17)
NOON = datetime.datetime(2026, 11, 17, 12, 0, 1)
UUID = uuid.UUID("12345678123456781234567812345678")


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, None),
        (True, True),
        (1 << 70, 1 << 70),
        (1.5, 1.5),
        (math.inf, {"$float": "inf"}),
        ("é", "é"),
        (b"\x00\xff", {"$bytes": "AP8="}),
        (bytearray(b"a"), {"$bytes": "YQ=="}),
        ((1, "a", (2,)), [1, "a", [2]]),
        ({"a": 1, "b": [b""]}, {"a": 1, "b": [{"$bytes": ""}]}),
        ({1: "a", (2, 3): None}, {"$map": [[1, "a"], [[2, 3], None]]}),
        ({"$bytes": "no"}, {"$map": [["$bytes", "no"]]}),
        (Row(city="oslo", number=1), {"city": "oslo", "number": 1}),
        (Row("oslo", 1), ["oslo", 1]),
        (Place("oslo", 1), {"city": "oslo", "number": 1}),
        (Pair(1, 2), [1, 2]),
        (DAY, "2026-11-17"),
        (NOON, "2026-11-17T12:00:01"),
        (datetime.time(1, 2, 3), "01:02:03"),
        (datetime.timedelta(seconds=1.5), 1.5),
        (decimal.Decimal("1.50"), "1.50"),
        (UUID, str(UUID)),
        (Color.RED, "RED"),
        (Instant(1, 2), {"seconds": 1, "nanos": 2}),
        (numpy.int64(3), 3),
        (numpy.array([[1, 2]]), [[1, 2]]),
    ],
)
def test_values_are_json(value: Any, data: Any) -> None:
    assert value_to_json(value) == data
    assert json.loads(json.dumps(data, allow_nan=False)) == data


@pytest.mark.parametrize("value", [object(), Color, lambda: 1, [1, {"a": object()}]])
def test_value_that_json_cannot_carry_names_its_type(value: Any) -> None:
    with pytest.raises(NotJsonError, match=r"cannot be expressed in JSON"):
        value_to_json(value)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = value_from_json(json.loads(json.dumps(value_to_json(value), allow_nan=False)))
    assert repr(back) == repr(value)


UNDECLARED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary()
    | st.dates() | st.datetimes() | st.times() | st.uuids()
    | st.floats(allow_nan=False) | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)  # fmt: skip


@given(UNDECLARED)
def test_keys_of_undeclared_types_come_back_as_they_were(key: Any) -> None:
    back = key_from_json(json.loads(json.dumps(key_to_json(key), allow_nan=False)))
    assert back == key and type(back) is type(key)


DECLARED: list[tuple[Any, Any, Any]] = [
    (Types.STRING(), "ann", "ann"),
    (Types.LONG(), 42, 42),
    (Types.DOUBLE(), 1.5, 1.5),
    (Types.BOOLEAN(), True, True),
    (Types.BIG_INT(), 1 << 80, 1 << 80),
    (Types.BIG_DEC(), decimal.Decimal("1.5"), "1.5"),
    (Types.SQL_DATE(), DAY, "2026-11-17"),
    (Types.SQL_TIMESTAMP(), NOON, "2026-11-17T12:00:01"),
    (Types.SQL_TIME(), datetime.time(1, 2), "01:02:00"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"a", {"$bytes": "YQ=="}),
    (Types.TUPLE([Types.STRING(), Types.INT()]), ("ann", 1), ["ann", 1]),
    (Types.ROW_NAMED(["a"], [Types.INT()]), Row(a=1), {"a": 1}),
    (Types.INSTANT(), Instant(1, 2), {"seconds": 1, "nanos": 2}),
    (to_type_info(Place), Place("oslo", 1), {"city": "oslo", "number": 1}),
    (Types.LIST(Types.INT()), [1, 2], [1, 2]),
    (Types.MAP(Types.STRING(), Types.SQL_DATE()), {"a": DAY}, {"a": "2026-11-17"}),
    (Types.MAP(Types.INT(), Types.INT()), {1: 2}, {"$map": [[1, 2]]}),
]


@pytest.mark.parametrize(("declared", "key", "data"), DECLARED)
def test_keys_and_values_of_declared_types_come_back_as_they_were(
    declared: Any, key: Any, data: Any
) -> None:
    schema = schema_of(declared)
    assert key_to_json(key, schema) == data
    for back in (key_from_json(data, schema), value_from_json(data, schema)):
        assert back == key and type(back) is type(key)


def test_key_group_of_a_dataclass_is_found_without_its_class() -> None:
    schema = schema_of(to_type_info(Place))
    like_it = key_from_json({"city": "oslo", "number": 1}, schema, classes=False)
    assert like_it == ("oslo", 1)
    assert stable_hash(like_it) == stable_hash(Place("oslo", 1))


@pytest.mark.parametrize(
    ("declared", "data"),
    [
        (Types.STRING(), 1),
        (Types.LONG(), "1"),
        (Types.LONG(), True),
        (Types.DOUBLE(), "x"),
        (Types.BOOLEAN(), 1),
        (Types.SQL_DATE(), "yesterday"),
        (Types.BIG_DEC(), "x"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "YQ=="),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), {"$bytes": "?"}),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ["ann"]),
        (to_type_info(Place), {"city": "oslo"}),
        (Types.MAP(Types.STRING(), Types.INT()), [1]),
        (Types.LIST(Types.INT()), 1),
        (None, {"a": 1}),
    ],
)
def test_what_is_no_key_of_the_type_is_refused(declared: Any, data: Any) -> None:
    with pytest.raises(NotJsonError):
        key_from_json(data, None if declared is None else schema_of(declared))


def test_key_whose_type_must_be_declared_says_so() -> None:
    with pytest.raises(NotJsonError, match=r"key_by\(selector, key_type\)"):
        key_to_json(Place("oslo", 1))
    assert key_to_json(Level.HIGH) == 3


@pytest.mark.parametrize(
    ("text", "declared", "data"),
    [
        ("42", Types.LONG(), 42),
        ("42", Types.STRING(), "42"),
        ('"42"', Types.STRING(), "42"),
        ("ann", Types.STRING(), "ann"),
        ("ann", None, "ann"),
        ("42", None, 42),
        ('["ann", 1]', None, ["ann", 1]),
        ("2026-11-17", Types.SQL_TIMESTAMP(), "2026-11-17"),
        ("12345678901234567890123", Types.BIG_INT(), "12345678901234567890123"),
    ],
)
def test_keys_in_addresses_are_read_by_their_type(text: str, declared: Any, data: Any) -> None:
    assert json_of_text(text, None if declared is None else schema_of(declared)) == data
