"""Blobs: layout, golden files, damage, values at rest."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest

from millpond.common import Row
from millpond.core import codec
from millpond.core.bundle import PHASE_RECORD, Bundle
from millpond.core.codec import BlobKind, Frozen, freeze, thaw
from millpond.datastream.state import StateKind
from millpond.engine.exchange.batch import LanePlan, SplitPlan
from millpond.engine.exchange.frames import (
    Control,
    Frame,
    Part,
    SplitEnd,
    Start,
    decode_control,
    decode_frame,
    encode_control,
    encode_frame,
)
from millpond.errors import CorruptDataError
from millpond.state.key_group_state import COLUMNS, KeyGroupState

GOLDEN = Path(__file__).parent / "golden"


def frame_blob() -> bytes:
    bundle = Bundle(
        [("a", 1), ("b", 2)],
        [1000, None],
        5,
        PHASE_RECORD,
        numpy.array([0, 1], numpy.int64),
        ["a", "b"],
    )
    return encode_frame(Frame(3, 7, Part(2, 0), 0, bundle))


def control_blob() -> bytes:
    start = Start([5, 6], {2: [(5, True), (6, False)]}, 5, {0: b"lists"})
    return encode_control(Control(99, start, [SplitEnd(2, 0, 7, True)], False, "/savepoints/.s1"))


def lane_blob() -> bytes:
    split = SplitPlan(1, 0, [[1, 2, 3]], False, {2: ("generator", 5, 90)})
    start = Start([5], {1: [(5, True)]}, 5)
    return LanePlan(4, 0, 99, [split], {7: start}, False, "/savepoints/.s1").encode()


def part_blob() -> bytes:
    schemas = {"count": {"key": "string", "value": "int"}}
    return codec.encode(BlobKind.SAVEPOINT_PART, (7, schemas, a_state().snapshot()))


def a_state() -> KeyGroupState:
    state = KeyGroupState(0)
    state.table("count", StateKind.VALUE).set("a", 1)
    state.table("count", StateKind.VALUE).set("b", 2)
    state.table("names", StateKind.LIST).extend("a", ["x"])
    for ad in ("ad-1", "ad-2"):
        state.table("by ad", StateKind.MAP).put("a", ad, 2)
    state.event_timers.register(1000, "a")
    state.commit()
    return state


def change_blob() -> bytes:
    state = a_state()
    state.table("count", StateKind.VALUE).remove("b")
    state.table("names", StateKind.LIST).extend("a", ["y"])
    state.table("by ad", StateKind.MAP).put("a", "ad-1", 3)
    state.table("by ad", StateKind.MAP).remove("a", "ad-2")
    state.event_timers.delete(1000, "a")
    state.event_timers.register(2000, "a")
    return codec.encode(BlobKind.CHANGE, state.changes())


def column_state(committed: bool) -> KeyGroupState:
    """Three keys, one of which came, one of which went, since the last commit."""
    state = KeyGroupState(0)
    table = state.table(COLUMNS, StateKind.COLUMN)
    table.declare("count", numpy.dtype("int32"), numpy.int32(0))
    table.declare("mean", numpy.dtype("float64"), numpy.float64(0))
    rows = table.rows_of([("ann", 1), ("bob", 2)])
    table.put("count", rows, numpy.array([3, 4], numpy.int32))
    table.put("mean", rows, numpy.array([0.5, 1.5]))
    table.register(numpy.array([100, 200]), rows)
    table.accept_call()
    state.commit()
    if not committed:
        table.remove_fired(numpy.array([100]), rows[:1], 1)
        table.put("count", rows[:1], numpy.int32(0))
        table.put("mean", rows[:1], numpy.float64(0))
        new = table.rows_of([("eve", 3)])
        table.put("count", new, numpy.int32(1))
        table.accept_call()
        table.register(numpy.array([300]), new)
        table.remove_timers({(200, int(rows[1]))})
        table.release_rows()
    return state


BLOBS = {
    "frame.v4": frame_blob,
    "control.v3": control_blob,
    "lane.v3": lane_blob,
    "part.v1": part_blob,
    "change.v3": change_blob,
    "snapshot.v3": lambda: codec.encode(BlobKind.SNAPSHOT, a_state().snapshot()),
    "columns-change.v3": lambda: codec.encode(BlobKind.CHANGE, column_state(False).changes()),
    "columns-snapshot.v3": lambda: codec.encode(BlobKind.SNAPSHOT, column_state(True).snapshot()),
    "head.v2": lambda: codec.encode(
        BlobKind.LOG_HEAD, (3, b"token", 0, 1, 4, 1, 100, 30, 2, 1.0, 20, ())
    ),
    "unions.v1": lambda: codec.encode(BlobKind.UNIONS, {0: b"one", 1: b"two"}),
    "run.v1": lambda: codec.encode(BlobKind.SEGMENT, (b"one", b"two")),
}


@pytest.mark.parametrize("name", BLOBS)
def test_blobs_of_earlier_days_can_still_be_read(name: str) -> None:
    """The golden files were written when the format was new; never regenerate them, add new ones."""
    path = GOLDEN / f"{name}.bin"
    stored, now = path.read_bytes(), BLOBS[name]()
    kind = BlobKind(codec.kind_of(stored))
    assert repr(codec.decode(kind, stored)) == repr(codec.decode(kind, now))
    assert stored[:4] == now[:4] == b"MP" + bytes([codec.VERSIONS[kind], kind])


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("frame", 1),
        ("frame", 2),
        ("frame", 3),
        ("change", 1),
        ("change", 2),
        ("control", 1),
        ("control", 2),
        ("lane", 1),
        ("lane", 2),
        ("head", 1),
    ],
)
def test_blob_of_a_format_that_is_gone_is_refused(name: str, version: int) -> None:
    stored = (GOLDEN / f"{name}.v{version}.bin").read_bytes()
    kind = BlobKind(codec.kind_of(stored))
    with pytest.raises(CorruptDataError, match=f"written in format {version}, this release reads"):
        codec.decode(kind, stored)


def columns_bundle() -> Bundle:
    columns = pyarrow.record_batch({"user": ["ann", "bob"], "seen_at": [7, 9]})
    sequences = numpy.array([0, 1], numpy.int64)
    return Bundle(columns, numpy.array([7, 9]), 5, PHASE_RECORD, sequences)


def test_frame_of_columns_gives_them_back_also_one_of_earlier_days() -> None:
    for blob in (
        encode_frame(Frame(3, 7, Part(2, 0), 0, columns_bundle())),
        (GOLDEN / "frame-of-columns.v4.bin").read_bytes(),
    ):
        bundle = decode_frame(blob).bundle
        assert bundle.values.equals(columns_bundle().values)
        assert bundle.timestamps.tolist() == [7, 9]
        assert bundle.keys is None


def test_frame_gives_its_records_back() -> None:
    frame = decode_frame(frame_blob())
    bundle = frame.bundle
    assert bundle.values == [("a", 1), ("b", 2)]
    assert bundle.timestamps == [1000, None]
    assert bundle.keys == ["a", "b"]
    assert (bundle.clocks, bundle.phases, bundle.sequences.tolist()) == (5, 1, [0, 1])
    assert frame.part == Part(2, 0)


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ([("a", 1), ("b", 2)], ["a", "b"]),
        ([("x", "a"), ("y", "b")], ["a", "b"]),
        ([("x", "a"), ("b",)], ["a", "b"]),
        ([("a", "a"), ("b", "a")], ["a", "b"]),
        (["a", "b"], ["a", "b"]),
        ([("a", 1), ["b", 2]], ["a", "b"]),
        ([("a", 1), ("c", 2)], ["a", "b"]),
        ([1, 2], None),
    ],
)
def test_frame_gives_keys_back_wherever_they_come_from(
    values: list[Any], keys: list[str] | None
) -> None:
    bundle = Bundle(values, None, 5, PHASE_RECORD, numpy.array([0, 1], numpy.int64), keys)
    found = decode_frame(encode_frame(Frame(3, 7, Part(2, 0), 0, bundle))).bundle
    assert (found.values, found.keys) == (values, keys)


def test_control_comes_back_whole() -> None:
    control = decode_control(control_blob())
    assert control.start == Start([5, 6], {2: [(5, True), (6, False)]}, 5, {0: b"lists"})
    assert control.ends == [SplitEnd(2, 0, 7, True)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: blob[:5], "too short"),
        (lambda blob: b"XX" + blob[2:], "not a Millpond blob"),
        (lambda blob: blob[:2] + b"\x09" + blob[3:], "written in format 9"),
        (lambda blob: blob[:3] + b"\x05" + blob[4:], "expected CHANGE"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "checksum does not match"),
    ],
)
def test_damaged_blob_says_what_is_wrong_and_where(damage: Any, message: str) -> None:
    blob = damage(codec.encode(BlobKind.CHANGE, {"some": "content"}))
    with pytest.raises(CorruptDataError, match=message) as error:
        codec.decode(BlobKind.CHANGE, blob, "file x")
    assert "file x" in str(error.value)


@pytest.mark.parametrize(
    "value",
    [1, "x", 2.5, None, True, b"b", (1, ("a", None)), decimal.Decimal(1), datetime.date.today()],
    ids=repr,
)
def test_immutable_values_rest_as_they_are(value: Any) -> None:
    assert freeze(value) is value


@pytest.mark.parametrize("value", [[1], {"a": 1}, (1, [2]), Row(a=1), {1, 2}], ids=repr)
def test_mutable_values_rest_as_copies(value: Any) -> None:
    frozen = freeze(value)
    assert isinstance(frozen, Frozen)
    assert thaw(frozen) == value
    assert thaw(frozen) is not value
    assert thaw(frozen) is not thaw(frozen)
