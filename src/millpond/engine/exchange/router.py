"""Sends records out of a task, to the labels of the next tasks and to sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy

from millpond.core.bundle import Bundle
from millpond.core.codec import freeze_all, thaw_all
from millpond.core.columns import Numbers
from millpond.core.key_groups import key_group_of, key_groups_of, murmur_mix
from millpond.core.labels import make_label, split_label
from millpond.core.record_columns import Values, as_list, is_columns
from millpond.datastream.columns import FieldKeySelector
from millpond.datastream.functions import KeySelector, Partitioner
from millpond.datastream.stream_graph import Exchange, ExchangeKind
from millpond.engine.exchange.field_keys import key_groups_in
from millpond.engine.exchange.frames import SINK_LEVEL, Frame, Producer, Row, encode_frame
from millpond.errors import ProgramError
from millpond.plan.physical import ExchangePlan, JobPlan, SinkPlan, TaskPlan

_KEY_CACHE_LIMIT = 1_000_000
_PENDING_FRAMES = 32  # records are held back until they fill this many frames
Choose = Callable[[Values], tuple["list[Any] | None", "int | Numbers | None"]]
"""values -> (keys or None; the number of the label of each value, or one for all, or None for every label)"""
KeyFunction = KeySelector | Callable[[Any], Any]
PartitionFunction = Partitioner | Callable[[Any, int], int]


class Router:
    """Collects what a task sends out during one pass, and packs it into rows."""

    def __init__(self, plan: JobPlan, task: TaskPlan, frame_records: int) -> None:
        self._plan = plan
        self._task = task
        self._frame_records = frame_records
        self._outlets: list[_Outlet] = []
        self._rows: list[Row] = []
        self.producer = Producer(-1, 0)
        self.subtask = 0
        self._spread = 0
        self._sequence = 0
        self._forget_counts()

    def _forget_counts(self) -> None:
        """Reset the counts since `begin`. Records are counted once per outlet, bytes once per label."""
        self.records_out = 0
        self.bytes_out = 0
        self.to_sinks: dict[tuple[int, int], tuple[int, int]] = {}

    def begin(self, producer: Producer, subtask: int) -> None:
        """Turn to a split or label. All rows of the one before it must have been taken."""
        self.producer = producer
        self.subtask = subtask
        self._sequence = 0
        # Starts from a number that depends on the producer, so that small inputs are spread as well, and that
        # is the same when a batch is run again.
        self._spread = producer.number
        self._forget_counts()

    def reset(self) -> None:
        """Forget what was collected by a pass that failed."""
        for outlet in self._outlets:
            outlet.reset()
        self._rows = []
        self._forget_counts()

    def take_rows(self) -> list[Row]:
        """Pack what is pending, and return all rows since the last call."""
        for outlet in self._outlets:
            outlet.flush()
            outlet.reset()
        rows, self._rows = self._rows, []
        return rows

    @property
    def has_packed(self) -> bool:
        """True if there are rows for `packed` to return."""
        return bool(self._rows)

    def packed(self) -> Iterator[Row]:
        """Yield the rows that are ready already, so that a long pass need not hold all of them."""
        rows, self._rows = self._rows, []
        yield from rows

    def exchange_sender(self, exchange: ExchangePlan) -> Callable[[Bundle], None]:
        """Return the function that sends records through an exchange."""
        target = self._plan.tasks[exchange.target_task]
        labels = [make_label(target.ordinal, shard) for shard in range(target.shards)]
        where = self._plan.operators[exchange.source_operator].name
        choose = self._chooser(
            exchange.kind,
            exchange.key_selector,
            exchange.partitioner,
            target.max_parallelism if exchange.kind is ExchangeKind.KEY else target.shards,
            where,
        )
        if derives_keys(target, exchange):
            choose = _field_key_chooser(exchange.key_selector, target.max_parallelism, choose)
        if exchange.kind is ExchangeKind.KEY and not target.by_key_group:
            choose = _by_subtask(choose, target.parallelism, target.max_parallelism)
        return self._outlet(target.level, exchange.id, labels, choose).send

    def sink_sender(self, sink: SinkPlan, exchange: Exchange) -> Callable[[Bundle], None]:
        """Return the function that sends records to a sink."""
        labels = [make_label(0, number) for number in range(sink.parallelism)]
        choose = self._chooser(
            exchange.kind, exchange.key_selector, exchange.partitioner, len(labels), sink.name
        )
        return self._outlet(
            SINK_LEVEL, sink.id, labels, lambda values: (None, choose(values)[1])
        ).send

    def _outlet(self, level: int, target: int, labels: list[int], choose: Choose) -> _Outlet:
        outlet = _Outlet(self, level, target, labels, choose)
        self._outlets.append(outlet)
        return outlet

    def _chooser(
        self,
        kind: ExchangeKind,
        key_selector: KeyFunction,
        partitioner: PartitionFunction,
        count: int,
        where: str,
    ) -> Choose:
        if kind is ExchangeKind.KEY:
            return _key_chooser(key_selector, count)
        if kind is ExchangeKind.CUSTOM:
            return _custom_chooser(key_selector, partitioner, count, where)
        if kind is ExchangeKind.BROADCAST:
            return lambda values: (None, None)
        if kind is ExchangeKind.GLOBAL:
            return lambda values: (None, 0)
        if kind is ExchangeKind.FORWARD:
            return lambda values: (None, self.subtask % count)
        shuffled = kind is ExchangeKind.SHUFFLE

        def spread(values: list[Any]) -> tuple[None, Numbers]:
            first = self._spread + 1
            self._spread += len(values)
            turns = range(first, first + len(values))
            numbers = map(murmur_mix, turns) if shuffled else turns
            return None, numpy.fromiter(numbers, numpy.int64, len(values)) % count

        return spread

    def numbered(self, bundle: Bundle) -> Numbers:
        """Return the sequence numbers with which records leave.

        A source task with one outlet numbers what leaves it, so that no two records tie later on. With
        several outlets, records keep the number of the source's record, because only that does not depend on
        where batches are cut."""
        if self._task.level > 0 or len(self._outlets) > 1:
            return bundle.sequences
        first = self._sequence + 1
        self._sequence += len(bundle)
        return numpy.arange(first, first + len(bundle), dtype=numpy.int64)

    def add_frame(
        self,
        level: int,
        target: int,
        labels: list[int],
        producer: Producer,
        number: int,
        bundle: Bundle,
    ) -> None:
        """Pack a frame, and add it to the rows of each of these labels."""
        blob = encode_frame(Frame(target, self._task.id, producer, number, bundle))
        self._rows.extend((level, label, blob) for label in labels)
        count, size = len(bundle), len(blob)
        self.records_out += count
        self.bytes_out += size * len(labels)
        if level == SINK_LEVEL:
            for label in labels:
                sink_subtask = target, split_label(label)[1]
                records, sent = self.to_sinks.get(sink_subtask, (0, 0))
                self.to_sinks[sink_subtask] = records + count, sent + size

    @property
    def frame_records(self) -> int:
        """The largest number of records in a frame."""
        return self._frame_records


class _Outlet:
    """One way out of a task. Records of all labels wait here together, and are sorted by label when there are
    enough of them. So a frame holds many records, and each step is done for all of them at once."""

    def __init__(
        self, router: Router, level: int, target: int, labels: list[int], choose: Choose
    ) -> None:
        self._router = router
        self._level = level
        self._target = target
        self._labels = labels
        self._choose = choose
        self._producer = Producer(-1, 0)
        self.reset()

    def reset(self) -> None:
        """Drop what is pending, and number the frames of every label from 0 again."""
        self._pending: list[tuple[Bundle, int | Numbers | None]] = []
        self._count = 0
        self._numbers: dict[tuple[int | None, Producer], int] = {}

    def send(self, bundle: Bundle) -> None:
        keys, labels = self._choose(bundle.values)
        if self._producer != self._router.producer:
            self.flush()
            self._producer = self._router.producer
        out = bundle.with_values(freeze_all(bundle.values))
        out.sequences = self._router.numbered(bundle)
        out.keys = keys
        self._pending.append((out, labels))
        self._count += len(bundle)
        if self._count >= _PENDING_FRAMES * self._router.frame_records:
            self.flush()

    def flush(self) -> None:
        if not self._pending:
            return
        pending, self._pending, self._count = self._pending, [], 0
        bundle = Bundle.joined([bundle for bundle, _ in pending])
        chosen = [labels for _, labels in pending]
        if chosen[0] is None or isinstance(chosen[0], int):
            # It is the same for all records of the producer.
            self._add(chosen[0], bundle)
        else:
            self._scatter(bundle, numpy.concatenate(chosen))  # type: ignore[arg-type]

    def _scatter(self, bundle: Bundle, labels: Numbers) -> None:
        """Sort records by label, keeping their order within each label, and cut them into frames."""
        ends = numpy.cumsum(numpy.bincount(labels, minlength=len(self._labels))).tolist()
        ordered = bundle.reordered(numpy.argsort(labels, kind="stable"))
        start = 0
        for label, end in enumerate(ends):
            if end > start:
                self._add(label, ordered.piece(start, end))
                start = end

    def _add(self, label: int | None, bundle: Bundle) -> None:
        """Add frames for a label, or for every label if it is None."""
        labels = self._labels if label is None else [self._labels[label]]
        limit = self._router.frame_records
        for start in range(0, len(bundle), limit):
            piece = bundle if len(bundle) <= limit else bundle.piece(start, start + limit)
            number = self._numbers.get((label, self._producer), 0)
            self._numbers[label, self._producer] = number + 1
            self._router.add_frame(self._level, self._target, labels, self._producer, number, piece)


def _key_chooser(selector: KeyFunction, max_parallelism: int) -> Choose:
    get_key = selector.get_key if isinstance(selector, KeySelector) else selector
    groups = _KeyGroups(max_parallelism)

    def choose(given: Values) -> tuple[list[Any], Numbers]:
        values = thaw_all(as_list(given))
        try:
            keys = list(map(get_key, values))
            numbers = key_groups_of(keys, max_parallelism)
            if numbers is None:
                if len(groups) >= _KEY_CACHE_LIMIT:
                    groups.clear()
                numbers = numpy.fromiter(map(groups.__getitem__, keys), numpy.int64, len(keys))
        except Exception:
            _find_bad_key(values, get_key, max_parallelism)
            raise
        return freeze_all(keys), numbers

    return choose


def _by_subtask(choose: Choose, parallelism: int, max_parallelism: int) -> Choose:
    """Return a chooser of subtasks, given one of key groups (C4)."""

    def subtasks(values: Values) -> tuple[list[Any] | None, int | Numbers | None]:
        keys, key_groups = choose(values)
        assert key_groups is not None
        return keys, key_groups * parallelism // max_parallelism

    return subtasks


def derives_keys(task: TaskPlan, exchange: ExchangePlan) -> bool:
    """Return True if a task finds the keys in the records, so that frames need not carry them."""
    return isinstance(exchange.key_selector, FieldKeySelector) and len(task.inputs) == 1


def _field_key_chooser(
    selector: FieldKeySelector, max_parallelism: int, by_record: Choose
) -> Choose:
    def choose(values: Values) -> tuple[list[Any] | None, int | Numbers | None]:
        numbers = None
        if is_columns(values):
            numbers = key_groups_in(values, selector, max_parallelism)
        return None, by_record(values)[1] if numbers is None else numbers

    return choose


class _KeyGroups(dict[Any, int]):
    """key -> key group, computed once per key."""

    def __init__(self, max_parallelism: int) -> None:
        super().__init__()
        self._max_parallelism = max_parallelism

    def __missing__(self, key: object) -> int:
        key_group = self[key] = key_group_of(key, self._max_parallelism)
        return key_group


def _find_bad_key(values: list[Any], get_key: Callable[[Any], Any], max_parallelism: int) -> None:
    """Raise a RecordError for the first record whose key is bad, if there is one."""
    for value in values:
        try:
            key = get_key(value)
            try:
                hash(key)
            except TypeError:
                raise ProgramError(
                    f"key_by returned {key!r}, which is not hashable. Return a tuple instead of a "
                    "list, or a frozen dataclass instead of a mutable one."
                ) from None
            key_group_of(key, max_parallelism)
        except Exception as problem:
            raise RecordError(value, problem) from problem


class RecordError(Exception):
    """A problem with one record of a bundle."""

    def __init__(self, record: object, problem: BaseException) -> None:
        super().__init__(record, problem)
        self.record = record
        self.problem = problem


def _custom_chooser(
    selector: KeyFunction, partitioner: PartitionFunction, count: int, where: str
) -> Choose:
    get_key = selector.get_key if isinstance(selector, KeySelector) else selector
    partition = partitioner.partition if isinstance(partitioner, Partitioner) else partitioner

    def choose(values: Values) -> tuple[None, Numbers]:
        numbers = []
        for value in thaw_all(as_list(values)):
            try:
                number = partition(get_key(value), count)
                if not 0 <= number < count:
                    raise ProgramError(
                        f"partition_custom at '{where}' returned {number}; it must return 0 to "
                        f"{count - 1}."
                    )
            except Exception as problem:
                raise RecordError(value, problem) from problem
            numbers.append(number)
        return None, numpy.array(numbers, numpy.int64)

    return choose
