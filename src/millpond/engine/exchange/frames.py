"""Frames, which carry records from one task to another. A row holds a frame, a control or a report.

    row = (level, label, blob)    level: the pass that the row is for; label: see core/labels.py

Payload of a frame (see core/codec.py for the envelope):
    (exchange or sink, source task, producer, number, values, timestamps, keys, clocks, phases,
     sequences)

    `values` is a list, or (schema, batch) in Arrow's IPC format. `keys` is a list; or the number of the field
    of the values that holds the key (-1 if the values themselves are the keys); or None if there are no keys
    or the reader finds them. `timestamps` is None, a list or a column. The last three are columns
    (core/columns.py); clocks and phases are a single number if they are the same for all records.

The frames of one producer are sorted by place (core/bundle.py). The next task merges the frames of all
producers by place, so the order does not depend on how the work was distributed or cut into batches.
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


class Producer(NamedTuple):
    """The origin of a frame: a split of a watermark origin or, if `origin` is -1, a label of a task. The
    frames of one producer are numbered, and their records are in order."""

    origin: int
    number: int


class Frame(NamedTuple):
    """Records of one producer for one label. `number` counts the frames of that producer for that label."""

    target: int  # exchange id, or sink id in rows of SINK_LEVEL
    source_task: int
    producer: Producer
    number: int
    bundle: Bundle


def encode_frame(frame: Frame) -> bytes:
    """Return a frame as a blob. Values and keys must be at rest."""
    bundle = frame.bundle
    return codec.encode(
        BlobKind.FRAME,
        (
            frame.target,
            frame.source_task,
            tuple(frame.producer),
            frame.number,
            _encode_values(bundle.values),
            _encode_numbers(bundle.timestamps),
            _encode_keys(bundle.keys, bundle.values),
            _encode_numbers(bundle.clocks),
            _encode_numbers(bundle.phases),
            _encode_numbers(bundle.sequences),
        ),
    )


def _encode_values(values: Values) -> object:
    if not is_columns(values):
        return values
    return values.schema.serialize().to_pybytes(), values.serialize().to_pybytes()


def _decode_values(encoded: list[Any] | tuple[bytes, bytes]) -> Values:
    if isinstance(encoded, list):
        return encoded
    schema, batch = map(pyarrow.py_buffer, encoded)
    return pyarrow.ipc.read_record_batch(batch, pyarrow.ipc.read_schema(schema))


def _encode_keys(keys: list[Any] | None, values: Values) -> list[Any] | int | None:
    """Return the number of a field instead of the keys, if they are the very objects in that field of their
    records. Mostly they are."""
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


def _encode_numbers(numbers: list[int | None] | Numbers | int | None) -> object:
    return IntColumn(numbers).encode() if isinstance(numbers, numpy.ndarray) else numbers


def _decode_numbers(encoded: object) -> Any:
    return numbers_of(decode_column(encoded)) if isinstance(encoded, tuple) else encoded


def decode_frame(blob: bytes) -> Frame:
    """Return the frame in a blob. Raises CorruptDataError if it is damaged."""
    target, source_task, producer, number, values, timestamps, keys, clocks, phases, sequences = (
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
    return Frame(target, source_task, Producer(*producer), number, bundle)


def merge(
    frames: Iterable[Frame], input_of: Callable[[Frame], int], later_input_first: bool = False
) -> Bundle | None:
    """Return all records of the frames of one label in the order of their places; None if there are none.

    `input_of` says which input the records of a frame belong to. With `later_input_first`, records of input 1
    come before those of input 0 at the same instant."""
    ordered = sorted(frames, key=lambda f: (f.target, f.source_task, f.producer, f.number))
    ordered = [frame for frame in ordered if len(frame.bundle)]
    if not ordered:
        return None
    for frame in ordered:
        frame.bundle.inputs = input_of(frame)
    bundle = Bundle.joined([frame.bundle for frame in ordered])
    producers = {(frame.target, frame.source_task, frame.producer) for frame in ordered}
    if later_input_first:
        _put_first(bundle)
    return bundle if len(producers) == 1 else bundle.reordered(_order(bundle))


def _put_first(bundle: Bundle) -> None:
    """Give records of input 1 places before all other records of their instant, in the same order."""
    count = len(bundle)
    is_first = numpy.broadcast_to(numpy.asarray(bundle.inputs, numpy.int64), (count,)) == 1
    phases = numpy.broadcast_to(numpy.asarray(bundle.phases, numpy.int64), (count,))
    earlier = bundle.sequences + (phases << 60) - (1 << 62)
    bundle.sequences = numpy.where(is_first, earlier, bundle.sequences)
    bundle.phases = numpy.where(is_first, 0, phases)


def _order(bundle: Bundle) -> Numbers:
    """Return the positions of records in the order of places. Producers break ties, in their order."""
    columns: list[int | Numbers] = [bundle.sequences, bundle.phases, bundle.clocks]
    return numpy.lexsort([column for column in columns if not isinstance(column, int)])
