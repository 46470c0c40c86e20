"""Takes records out of a task: to the labels of the next tasks, and to sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millpond.datastream.functions import KeySelector, Partitioner
from millpond.errors import ProgramError
from millpond.plan.graph import Exchange, ExchangeKind
from millpond.plan.physical import ExchangePlan, JobPlan, SinkPlan, TaskPlan
from millpond.runtime.task.frames import SINK_LEVEL, FrameBuilder, Part, Place, Row
from millpond.runtime.task.key_groups import key_group_of, murmur_mix
from millpond.runtime.task.labels import make_label

_KEY_CACHE_LIMIT = 1_000_000


class Router:
    """Collects one pass's output of one task and packs it into rows.

    `place` is set by the task before each record or timer; it never goes back, so that every run
    is sorted."""

    def __init__(self, plan: JobPlan, task: TaskPlan, frame_records: int) -> None:
        self._plan = plan
        self._task = task
        self._frame_records = frame_records
        self._builders: dict[tuple[int, int, int, Part], FrameBuilder] = {}
        self._numbers: dict[tuple[int, int, int, Part], int] = {}
        self._rows: list[Row] = []
        self.place: Place = (0, 0, 0)
        self.part = Part(-1, 0)
        self.subtask = 0
        self._renumber = task.level == 0
        self._sequence = 0
        self._spread = 0

    def begin(self, part: Part, subtask: int) -> None:
        self.part = part
        self.subtask = subtask
        self._sequence = 0
        # Counts on from a number that depends on the run, so that small runs spread, too; and is
        # the same again when a batch is replayed.
        self._spread = part.number

    def take_rows(self) -> list[Row]:
        """Everything packed since the last call."""
        for target in list(self._builders):
            self._flush(target)
        self._numbers.clear()
        rows, self._rows = self._rows, []
        return rows

    def exchange_sender(self, exchange: ExchangePlan) -> Callable[[Any, int | None], None]:
        """The function that sends a record through an exchange."""
        target = self._plan.tasks[exchange.target_task]
        labels = [make_label(target.ordinal, number) for number in range(target.labels)]
        where = self._plan.operators[exchange.source_operator].name
        choose = self._chooser(
            exchange.kind, exchange.key_selector, exchange.partitioner, target.labels, where
        )
        level, exchange_id = target.level, exchange.id

        def send(value: Any, timestamp: int | None) -> None:
            key, numbers = choose(value)
            for number in numbers:
                self._add(level, exchange_id, labels[number], value, timestamp, key)

        return send

    def sink_sender(self, sink: SinkPlan, exchange: Exchange) -> Callable[[Any, int | None], None]:
        labels = [make_label(0, number) for number in range(sink.parallelism)]
        choose = self._chooser(
            exchange.kind, exchange.key_selector, exchange.partitioner, len(labels), sink.name
        )

        def send(value: Any, timestamp: int | None) -> None:
            for number in choose(value)[1]:
                self._add(SINK_LEVEL, sink.id, labels[number], value, timestamp, None)

        return send

    def _chooser(
        self, kind: ExchangeKind, key_selector: Any, partitioner: Any, count: int, where: str
    ) -> Callable[[Any], tuple[Any, Any]]:
        """value -> (key, numbers of the labels it goes to)."""
        if kind is ExchangeKind.KEY:
            return _key_chooser(key_selector, count)
        if kind is ExchangeKind.CUSTOM:
            return _custom_chooser(key_selector, partitioner, count, where)
        if kind is ExchangeKind.BROADCAST:
            everywhere = range(count)
            return lambda value: (None, everywhere)
        if kind is ExchangeKind.GLOBAL:
            return lambda value: (None, (0,))
        if kind is ExchangeKind.FORWARD:
            return lambda value: (None, (self.subtask % count,))
        shuffled = kind is ExchangeKind.SHUFFLE

        def next_one(value: Any) -> tuple[Any, Any]:
            self._spread += 1
            return None, ((murmur_mix(self._spread) if shuffled else self._spread) % count,)

        return next_one

    def _add(
        self,
        level: int,
        target: int,
        label: int,
        value: Any,
        timestamp: int | None,
        key: Any,
    ) -> None:
        address = (level, target, label, self.part)
        builder = self._builders.get(address)
        if builder is None:
            builder = self._builders[address] = FrameBuilder()
        place = self.place
        if self._renumber:  # a head numbers what leaves it, so that no two records tie later on
            self._sequence += 1
            place = (place[0], place[1], self._sequence)
        builder.add(value, timestamp, key, place)
        if len(builder.values) >= self._frame_records:
            self._flush(address)

    def _flush(self, address: tuple[int, int, int, Part]) -> None:
        level, target, label, part = address
        builder = self._builders.pop(address)
        number = self._numbers.get(address, 0)
        self._numbers[address] = number + 1
        keyed = level != SINK_LEVEL and self._plan.exchanges[target].kind is ExchangeKind.KEY
        blob = builder.build(target, self._task.id, part, number, keyed)
        self._rows.append((level, label, blob))

    def packed(self) -> Iterator[Row]:
        """Rows that are ready already, so that a long pass need not hold them all."""
        rows, self._rows = self._rows, []
        yield from rows


def _key_chooser(selector: Any, max_parallelism: int) -> Callable[[Any], tuple[Any, Any]]:
    get_key = selector.get_key if isinstance(selector, KeySelector) else selector
    cache: dict[Any, tuple[int]] = {}

    def choose(value: Any) -> tuple[Any, Any]:
        key = get_key(value)
        try:
            numbers = cache.get(key)
        except TypeError:
            raise ProgramError(
                f"key_by returned {key!r}, which is not hashable. Return a tuple instead of a list, "
                "a frozen dataclass instead of a mutable one."
            ) from None
        if numbers is None:
            if len(cache) >= _KEY_CACHE_LIMIT:
                cache.clear()
            numbers = cache[key] = (key_group_of(key, max_parallelism),)
        return key, numbers

    return choose


def _custom_chooser(
    selector: Any, partitioner: Any, count: int, where: str
) -> Callable[[Any], tuple[Any, Any]]:
    get_key = selector.get_key if isinstance(selector, KeySelector) else selector
    partition = partitioner.partition if isinstance(partitioner, Partitioner) else partitioner

    def choose(value: Any) -> tuple[Any, Any]:
        number = partition(get_key(value), count)
        if not 0 <= number < count:
            raise ProgramError(
                f"partition_custom at '{where}' returned {number}; it must return 0 to {count - 1}."
            )
        return None, (number,)

    return choose
