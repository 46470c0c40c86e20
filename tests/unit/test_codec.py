"""Blobs: layout, golden files, damage, values at rest."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pytest

from millpond.common import Row
from millpond.errors import CorruptDataError
from millpond.runtime.task import codec
from millpond.runtime.task.batch import LanePlan, SplitPlan
from millpond.runtime.task.codec import BlobKind, Frozen, freeze, thaw
from millpond.runtime.task.frames import (
    Control,
    FrameBuilder,
    Part,
    SplitEnd,
    Start,
    decode_control,
    decode_frame,
    encode_control,
)
from millpond.state.tables import MISSING

GOLDEN = Path(__file__).parent / "golden"


def frame_blob() -> bytes:
    builder = FrameBuilder()
    builder.add(("a", 1), 1000, "a", (5, 1, 0))
    builder.add(("b", 2), None, "b", (5, 1, 1))
    return builder.build(3, 7, Part(2, 0), 0, keyed=True)


def control_blob() -> bytes:
    start = Start([5, 6], {2: [(5, True), (6, False)]}, 5)
    return encode_control(Control(99, start, [SplitEnd(2, 0, 7, True)], False))


def lane_blob() -> bytes:
    split = SplitPlan(1, 0, [[1, 2, 3]], False, {2: ("generator", 5, 90)})
    return LanePlan(4, 0, 99, [split], {7: Start([5], {1: [(5, True)]}, 5)}, False).encode()


CHANGE = {
    "states": {
        "count": ("value", {"a": 1, "b": MISSING}),
        "names": ("list", {"a": (True, ["x"])}),
        "by ad": ("map", {"a": [("ad-1", False, 2), ("ad-2", True, MISSING)]}),
    },
    "event": (2, {(1000, "a", None): 1}),
    "processing": (0, {}),
}
BLOBS = {
    "frame": frame_blob,
    "control": control_blob,
    "lane": lane_blob,
    "change": lambda: codec.encode(BlobKind.CHANGE, CHANGE),
    "head": lambda: codec.encode(BlobKind.LOG_HEAD, (3, b"token", 0, 1, 4, 100, 30, 2, ())),
}


@pytest.mark.parametrize("name", BLOBS)
def test_blobs_of_format_1_can_still_be_read(name: str) -> None:
    """The golden files were written by the first release; never regenerate them, add new ones."""
    path = GOLDEN / f"{name}.v1.bin"
    stored, now = path.read_bytes(), BLOBS[name]()
    kind = BlobKind(codec.kind_of(stored))
    assert repr(codec.decode(kind, stored)) == repr(codec.decode(kind, now))
    assert stored[:4] == now[:4] == b"MP\x01" + bytes([kind])


def test_frame_gives_its_records_back() -> None:
    frame = decode_frame(frame_blob())
    records = [(r.place, r.value, r.timestamp, r.key) for r in frame.records()]
    assert records == [
        ((5, 1, 0), ("a", 1), 1000, "a"),
        ((5, 1, 1), ("b", 2), None, "b"),
    ]
    assert frame.part == Part(2, 0)


def test_control_comes_back_whole() -> None:
    control = decode_control(control_blob())
    assert control.start == Start([5, 6], {2: [(5, True), (6, False)]}, 5)
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


def test_missing_is_one_object_after_a_round_trip() -> None:
    assert codec.loads(codec.dumps({"k": MISSING}))["k"] is MISSING
