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
from millpond.driver.epochs.batch_plan import BatchPlan
from millpond.driver.epochs.epoch_record import EpochRecord
from millpond.driver.reporting.checkpoint_history import CheckpointRecord
from millpond.driver.savepoint_requests import SavepointRequest
from millpond.engine.exchange.batch import LanePlan, SplitPlan, Unread
from millpond.engine.exchange.chunks import BatchInfo, decode_chunk, encode_chunks
from millpond.engine.exchange.controls import (
    Control,
    SplitEnd,
    Start,
    decode_control,
    encode_control,
)
from millpond.engine.exchange.frames import Frame, Producer, decode_frame, encode_frame
from millpond.engine.exchange.reports import (
    LogSize,
    PassRun,
    Prepared,
    Report,
    UnionLists,
    WorkCounts,
)
from millpond.errors import CorruptDataError
from millpond.plan.identity import JobIdentity
from millpond.savepoint.job_state import SavedJobState, SourceState, TaskClockState
from millpond.state.log_tail import LogHead
from millpond.state.shard_state import COLUMNS, ShardState

GOLDEN = Path(__file__).parents[1] / "golden"


def frame_blob() -> bytes:
    bundle = Bundle(
        [("a", 1), ("b", 2)],
        [1000, None],
        5,
        PHASE_RECORD,
        numpy.array([0, 1], numpy.int64),
        ["a", "b"],
    )
    return encode_frame(Frame(3, 7, Producer(2, 0), 0, bundle))


def control_blob() -> bytes:
    start = Start([5, 6], {2: [(5, True), (6, False)]}, 5, {0: b"lists"})
    log = (("log/1/0/1-ab-0", 500),)
    ends = [SplitEnd(2, 0, 7, True)]
    return encode_control(Control(99, start, ends, False, "/savepoints/.s1", 4, log))


def lane() -> LanePlan:
    split = SplitPlan(1, 0, [[1, 2, 3]], False, {2: ("generator", 5, 90)}, 1)
    start = Start([5], {1: [(5, True)]}, 5)
    logs = {(1, 0): (("log/1/0/1-ab-0", 500),)}
    return LanePlan(4, 0, 99, [split], {7: start}, False, "/savepoints/.s1", 1000, logs, 200)


def chunk_blob() -> bytes:
    rows = [(1, 3, frame_blob()), (127, 0, b"report")]
    (blob,) = encode_chunks(b"token", BatchInfo(4, 99, False), rows)
    return blob


def part_blob() -> bytes:
    schemas = {"count": {"key": "string", "value": "int"}}
    return codec.encode(BlobKind.SAVEPOINT_PART, (schemas, a_state().snapshot()))


def a_state() -> ShardState:
    state = ShardState(0)
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


def column_state(committed: bool) -> ShardState:
    """Three keys, one of which came, one of which went, since the last commit."""
    state = ShardState(0)
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


def report() -> Report:
    return Report(
        ends=[SplitEnd(2, 0, 7, True)],
        generators={(1, 0): {2: ("generator", 5, 90)}},
        wakeup_ms=500,
        metrics=[{"count.seen": ("sum", 3)}],
        log_sizes=[LogSize(7, 3, 100, 4000)],
        unions=[UnionLists(7, 0, b"lists")],
        parts=[(7, 3, 1234, "token")],
        types={"count": {"views": [("value", {"value": "int"})]}},
        prepared=[Prepared(9, 1, "message")],
        works=[
            WorkCounts(
                7, 0, 10, 8, 100, 80, 5000, ((3, 10),), (("ann", 4),), ((9, 1, 8, 80),), 0.5, "here"
            )
        ],
        unread={(1, 0): Unread([[4, 5]], 1)},
        runs=[PassRun(4, 1, 0, b"token", (b"one", b"two"), (("log/1/0/1-ab-0", 500),))],
    )


def batch_plan() -> BatchPlan:
    request = SavepointRequest("id", "/savepoints", stop=True, drain=False, name="savepoint-1")
    return BatchPlan(
        {1: 30},
        {1: [True, False]},
        99,
        request,
        stops=True,
        lanes=[lane()],
        unread={(1, 1): Unread([[6]])},
    )


def epoch_record() -> EpochRecord:
    return EpochRecord(
        generators={(1, 0): {2: ("generator", 5, 90)}},
        channels={2: [(5, True)]},
        starts={7: Start([5], {2: [(5, True)]}, 5)},
        wakeup_ms=500,
        metrics={"count.seen": 3},
        prepared=[Prepared(9, 1, "message")],
        finished=False,
        checkpoint=CheckpointRecord(4, 99, 10, 100, 4000, False, 3),
        log_bytes={(7, 3): 4000},
        positions={1: 30},
        ended={1: [True, False]},
        time_ms=99,
        logs={(1, 0): (("log/1/0/1-ab-0", 500),)},
        savepoints=[
            (("id", "/savepoints", False, False, "s1"), b"state", 3, [(7, 3, 1234, "token")])
        ],
        has_savepoint=True,
        unread={(1, 0): Unread([[4, 5]], 1)},
        statistics={1: ([(1, 2, 3, 4, 5)], 0.5, 1.5)},
        state_types={"count": {"views": [("value", {"value": "int"})]}},
        key_types={"count": "string"},
    )


def job_identity() -> JobIdentity:
    operators = [("count", "keyed_process", 7, 1, 0)]
    sinks = [("out", 9)]
    return JobIdentity(
        "0" * 32, "/savepoints/s1", 2, {"count": 2}, {"count": 128}, operators, sinks, True
    )


def job_state() -> SavedJobState:
    return SavedJobState(
        {
            "words": SourceState(
                30, [False], {0: {"assigner": ("generator", 5, 90)}}, {0: ([[4, 5]], 1)}
            )
        },
        {"words": [(5, True)]},
        {"count": TaskClockState([5], 5)},
        99,
    )


BLOBS = {
    "frame": frame_blob,
    "control": control_blob,
    "report": lambda: report().encode(),
    "lane": lambda: lane().encode(),
    "chunk": chunk_blob,
    "batch-plan": lambda: batch_plan().encode(),
    "epoch": lambda: epoch_record().encode(),
    "job": lambda: job_identity().encode(),
    "job-state": lambda: job_state().encode(),
    "part": part_blob,
    "change": change_blob,
    "snapshot": lambda: codec.encode(BlobKind.SNAPSHOT, a_state().snapshot()),
    "columns-change": lambda: codec.encode(BlobKind.CHANGE, column_state(False).changes()),
    "columns-snapshot": lambda: codec.encode(BlobKind.SNAPSHOT, column_state(True).snapshot()),
    "head": lambda: codec.encode(BlobKind.LOG_HEAD, tuple(LogHead(0, 1, 4, 100, 30, 2, 1.0))),
    "unions": lambda: codec.encode(BlobKind.UNIONS, {0: b"one", 1: b"two"}),
    "joined": lambda: codec.encode(BlobKind.JOINED, (b"one", b"two")),
}
"""name -> makes the blob whose golden file is NAME.vVERSION.bin. Write a missing one with
`python -m tests.unit.core.test_codec`; it never overwrites."""


def golden_file(name: str) -> Path:
    return GOLDEN / f"{name}.v{codec.VERSIONS[BlobKind(codec.kind_of(BLOBS[name]()))]}.bin"


@pytest.mark.parametrize("name", BLOBS)
def test_blobs_written_when_their_format_was_new_can_be_read(name: str) -> None:
    """From the first release on: never regenerate a golden file, add one for the new version."""
    stored, now = golden_file(name).read_bytes(), BLOBS[name]()
    kind = BlobKind(codec.kind_of(stored))
    assert repr(codec.decode(kind, stored)) == repr(codec.decode(kind, now))
    assert stored[:4] == now[:4] == b"MP" + bytes([codec.VERSIONS[kind], kind])


def test_every_kind_of_blob_has_a_golden_file() -> None:
    assert {BlobKind(codec.kind_of(make())) for make in BLOBS.values()} == set(BlobKind)
    expected = {golden_file(name) for name in BLOBS} | {
        GOLDEN / "frame-of-columns.v1.bin",
        GOLDEN / "look-ups.v1.bin",
        GOLDEN / "journal.v1.bin",
        GOLDEN / "log-segment.v1.bin",
    }
    assert set(GOLDEN.iterdir()) == expected


@pytest.mark.parametrize(
    ("decode", "expected"),
    [
        (lambda: Report.decode(report().encode()), report()),
        (lambda: LanePlan.decode(lane().encode(), "here"), lane()),
        (lambda: BatchPlan.decode(batch_plan().encode(), "here"), batch_plan()),
        (lambda: EpochRecord.decode(epoch_record().encode(), "here"), epoch_record()),
        (lambda: JobIdentity.decode(job_identity().encode(), "here"), job_identity()),
        (lambda: SavedJobState.decode(job_state().encode(), "here"), job_state()),
    ],
    ids=["report", "lane", "batch plan", "epoch", "job", "job state"],
)
def test_record_comes_back_whole(decode: Any, expected: Any) -> None:
    assert decode() == expected


def test_released_format_is_upgraded_version_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = codec.encode(BlobKind.UNIONS, "one")
    monkeypatch.setitem(codec.VERSIONS, BlobKind.UNIONS, 3)
    monkeypatch.setitem(codec.UPGRADES, (BlobKind.UNIONS, 1), lambda value: value + " two")
    monkeypatch.setitem(codec.UPGRADES, (BlobKind.UNIONS, 2), lambda value: value + " three")
    assert codec.decode(BlobKind.UNIONS, stored) == "one two three"
    assert codec.decode(BlobKind.UNIONS, codec.encode(BlobKind.UNIONS, "new")) == "new"


def test_format_of_a_newer_release_is_refused() -> None:
    stored = bytearray(codec.encode(BlobKind.UNIONS, {}))
    stored[2] = codec.VERSIONS[BlobKind.UNIONS] + 1
    with pytest.raises(CorruptDataError, match=r"here: written in format 2 by a newer release"):
        codec.decode(BlobKind.UNIONS, bytes(stored), "here")


def columns_bundle() -> Bundle:
    columns = pyarrow.record_batch({"user": ["ann", "bob"], "seen_at": [7, 9]})
    sequences = numpy.array([0, 1], numpy.int64)
    return Bundle(columns, numpy.array([7, 9]), 5, PHASE_RECORD, sequences)


def test_frame_of_columns_gives_them_back_also_from_the_golden_file() -> None:
    for blob in (
        encode_frame(Frame(3, 7, Producer(2, 0), 0, columns_bundle())),
        (GOLDEN / "frame-of-columns.v1.bin").read_bytes(),
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
    assert frame.producer == Producer(2, 0)


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
    found = decode_frame(encode_frame(Frame(3, 7, Producer(2, 0), 0, bundle))).bundle
    assert (found.values, found.keys) == (values, keys)


def test_control_comes_back_whole() -> None:
    control = decode_control(control_blob())
    assert control.start == Start([5, 6], {2: [(5, True), (6, False)]}, 5, {0: b"lists"})
    assert control.ends == [SplitEnd(2, 0, 7, True)]
    assert (control.epoch, control.log) == (4, (("log/1/0/1-ab-0", 500),))


def test_chunk_comes_back_whole() -> None:
    token, batch, rows = decode_chunk(chunk_blob())
    assert (token, batch) == (b"token", BatchInfo(4, 99, False))
    assert rows == [(1, 3, frame_blob()), (127, 0, b"report")]


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


def write_missing_golden_files() -> None:
    columns = encode_frame(Frame(3, 7, Producer(2, 0), 0, columns_bundle()))
    blobs = {golden_file(name): make() for name, make in BLOBS.items()}
    for path, blob in {**blobs, GOLDEN / "frame-of-columns.v1.bin": columns}.items():
        if not path.exists():
            path.write_bytes(blob)
            print(f"wrote {path.name}")


if __name__ == "__main__":
    write_missing_golden_files()
