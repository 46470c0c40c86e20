"""What travels between passes: frames of records, controls, meta messages. One row is one of them.

    row = (level, label, blob)    level: the pass it is for; label: what Spark groups by

Payloads (see codec.py for the envelope):
    frame    (exchange or sink, source task, part, number, values, timestamps, keys, clocks, phases,
              sequences): `values` a list, or (schema, batch) in Arrow's IPC format; `keys` a list, a
              number if they are this field of the values (-1: the values themselves), None if the
              reader finds them; `timestamps` None, a list, or a column; the last three are columns
              (columns.py); clocks and phases are one number if all are equal
    control  (processing time, start or None, ends, whether it is the last batch, folder for the parts of a
             savepoint or None, number of the batch)
    meta     a dict, see `meta_row`

The frames of one source task's part are a run, sorted by place (bundle.py). Runs are merged by place, so
the order at the next task does not depend on how the work was spread or cut.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy
import pyarrow

from millpond.core import codec
from millpond.core.bundle import Bundle
from millpond.core.codec import BlobKind
from millpond.core.columns import (
    IntColumn,
    Numbers,
    decode_column,
    numbers_of,
)
from millpond.core.record_columns import Values, is_columns

SINK_LEVEL = 127
_VALUES_THEMSELVES = -1
Row = tuple[int, int, bytes]


class Part(NamedTuple):
    """Which run a frame belongs to: a split of an origin, or (origin -1) a label of a task."""

    origin: int
    number: int


class Frame(NamedTuple):
    target: int  # exchange id, or sink id in rows of SINK_LEVEL
    source_task: int
    part: Part
    number: int
    bundle: Bundle


class SplitEnd(NamedTuple):
    """How far a split of a watermark origin has come at the end of a batch."""

    origin: int
    split: int
    watermark: int
    active: bool


class Start(NamedTuple):
    """A task's event-time clock at the start of a batch: the output of the valve of each of its
    inputs, the (watermark, active) of each split of each origin, and the clock itself.
    `unions`: the union lists of all subtasks, for one that starts anew (E31): subtask -> its lists as
    bytes, or the path of a file that has them."""

    inputs: list[int]
    origins: dict[int, list[tuple[int, bool]]]
    clock: int
    unions: dict[int, bytes] | str = {}


class Control(NamedTuple):
    """Time for one label: the batch's processing time, where its task's clock starts (None if
    another control of the batch says so), and how far splits have come at the batch's end."""

    processing_time_ms: int
    start: Start | None
    ends: list[SplitEnd]
    last_batch: bool = False
    savepoint: str | None = None  # the folder for the parts of a savepoint
    epoch: int = -1  # the number of the batch


def encode_frame(frame: Frame) -> bytes:
    bundle = frame.bundle
    return codec.encode(
        BlobKind.FRAME,
        (
            frame.target,
            frame.source_task,
            tuple(frame.part),
            frame.number,
            _encode_values(bundle.values),
            _encode_numbers(bundle.timestamps),
            _encode_keys(bundle.keys, bundle.values),
            _encode_numbers(bundle.clocks),
            _encode_numbers(bundle.phases),
            _encode_numbers(bundle.sequences),
        ),
    )


def _encode_values(values: Values) -> Any:
    if not is_columns(values):
        return values
    return values.schema.serialize().to_pybytes(), values.serialize().to_pybytes()


def _decode_values(encoded: Any) -> Values:
    if isinstance(encoded, list):
        return encoded
    schema, batch = map(pyarrow.py_buffer, encoded)
    return pyarrow.ipc.read_record_batch(batch, pyarrow.ipc.read_schema(schema))


def _encode_keys(keys: list[Any] | None, values: Values) -> list[Any] | int | None:
    """Keys are mostly a field of their records, the very object; then its number will do."""
    if not keys or not isinstance(values, list):
        return keys
    if all(map(operator.is_, keys, values)):
        return _VALUES_THEMSELVES
    first = values[0]
    if type(first) is tuple and {*map(type, values)} == {tuple}:
        for number, field in enumerate(first):
            if field is keys[0] and min(map(len, values)) > number:
                fields = map(operator.itemgetter(number), values)
                return number if all(map(operator.is_, keys, fields)) else keys
    return keys


def _decode_keys(encoded: list[Any] | int | None, values: Values) -> list[Any] | None:
    if not isinstance(encoded, int):
        return encoded
    if encoded == _VALUES_THEMSELVES:
        return list(values)
    return list(map(operator.itemgetter(encoded), values))


def _encode_numbers(numbers: Any) -> Any:
    return IntColumn(numbers).encode() if isinstance(numbers, numpy.ndarray) else numbers


def _decode_numbers(encoded: Any) -> Any:
    return numbers_of(decode_column(encoded)) if isinstance(encoded, tuple) else encoded


def decode_frame(blob: bytes) -> Frame:
    target, source_task, part, number, values, timestamps, keys, clocks, phases, sequences = (
        codec.decode(BlobKind.FRAME, blob)
    )
    values = _decode_values(values)
    bundle = Bundle(
        values,
        _decode_numbers(timestamps),
        _decode_numbers(clocks),
        _decode_numbers(phases),
        _decode_numbers(sequences),
        _decode_keys(keys, values),
    )
    return Frame(target, source_task, Part(*part), number, bundle)


def encode_control(control: Control) -> bytes:
    start = None if control.start is None else tuple(control.start)
    ends = [tuple(end) for end in control.ends]
    return codec.encode(
        BlobKind.CONTROL,
        (
            control.processing_time_ms,
            start,
            ends,
            control.last_batch,
            control.savepoint,
            control.epoch,
        ),
    )


def decode_control(blob: bytes) -> Control:
    processing_time_ms, start, ends, last_batch, savepoint, epoch = codec.decode(
        BlobKind.CONTROL, blob
    )
    return Control(
        processing_time_ms,
        None if start is None else Start(*start),
        [SplitEnd(*end) for end in ends],
        last_batch,
        savepoint,
        epoch,
    )


def join_controls(controls: Iterable[Control]) -> Control:
    """One control from all that reached a label."""
    known = list(controls)
    start = next(control.start for control in known if control.start is not None)
    ends = sorted(end for control in known for end in control.ends)
    savepoint = next((c.savepoint for c in known if c.savepoint is not None), None)
    last_batch = any(c.last_batch for c in known)
    epoch = max(c.epoch for c in known)
    return Control(known[0].processing_time_ms, start, ends, last_batch, savepoint, epoch)


def meta_row(content: dict[str, Any], label: int) -> Row:
    """A message to the driver. Keys: ends [SplitEnd], splits {split key: state}, wakeup_ms,
    metrics {name: value}, state (task, key group, bytes written, bytes of its log),
    unions (task, subtask, its union lists as bytes), work (a WorkCounts, work_meter.py)."""
    return SINK_LEVEL, label, codec.encode(BlobKind.META, content)


def rows_of_level(rows: Iterable[Row], level: int) -> tuple[list[Row], dict[int, list[bytes]]]:
    """(rows that are for other levels, label -> blobs for this one)."""
    passed: list[Row] = []
    groups: dict[int, list[bytes]] = {}
    for row in rows:
        if row[0] == level:
            groups.setdefault(row[1], []).append(row[2])
        else:
            passed.append(row)
    return passed, groups


def merge(
    frames: Iterable[Frame], input_of: Callable[[Frame], int], later_input_first: bool = False
) -> Bundle | None:
    """All records of the frames of one label, in the order of their places; None if there are none.
    `input_of` says which input the records of a frame belong to. `later_input_first`: at the same instant
    records of input 1 come before those of input 0."""
    ordered = sorted(frames, key=lambda f: (f.target, f.source_task, f.part, f.number))
    ordered = [frame for frame in ordered if len(frame.bundle)]
    if not ordered:
        return None
    for frame in ordered:
        frame.bundle.inputs = input_of(frame)
    bundle = Bundle.joined([frame.bundle for frame in ordered])
    runs = {(frame.target, frame.source_task, frame.part) for frame in ordered}
    if later_input_first:
        _put_first(bundle)
    return bundle if len(runs) == 1 else bundle.reordered(_order(bundle))


def _put_first(bundle: Bundle) -> None:
    """Give records of input 1 places before those of all others at their instant, in the same order."""
    count = len(bundle)
    is_first = numpy.broadcast_to(numpy.asarray(bundle.inputs, numpy.int64), (count,)) == 1
    phases = numpy.broadcast_to(numpy.asarray(bundle.phases, numpy.int64), (count,))
    earlier = bundle.sequences + (phases << 60) - (1 << 62)
    bundle.sequences = numpy.where(is_first, earlier, bundle.sequences)
    bundle.phases = numpy.where(is_first, 0, phases)


def _order(bundle: Bundle) -> Numbers:
    """Sorts by place; where places are equal, runs keep their order."""
    columns: list[int | Numbers] = [bundle.sequences, bundle.phases, bundle.clocks]
    return numpy.lexsort([column for column in columns if not isinstance(column, int)])
