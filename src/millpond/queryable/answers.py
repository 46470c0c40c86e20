"""Answers look-ups in a slot: JSON in, JSON out. `engine/state_views.py` says which version of the state
is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from millpond.common.time import MIN_TIMESTAMP
from millpond.core import codec
from millpond.core.key_groups import key_group_of, subtask_of
from millpond.datastream.state import StateDescriptor
from millpond.engine.state_views import QueryableState, StateViews, Unreadable
from millpond.errors import MillpondError, QueryableStateError
from millpond.queryable.json_codec import key_from_json, value_to_json
from millpond.queryable.protocol import MAX_KEYS, Status
from millpond.state.kinds.registry import spec_of
from millpond.state.shard_state import ShardState
from millpond.state.tables import MISSING
from millpond.state.ttl.expiry import Expiry
from millpond.state.types.schemas import is_pickled, schema_of

Result = list[Any]  # [status, what], as in the protocol
_TRIES = 12
_LOCK_S = 0.1
_WHOLE = object()  # stands for all entries of a map


class Answers:
    """The look-ups of one slot, to be used by one thread. `committed` returns the newest batch that is
    known to be committed, `pause` lets the thread that works go on for a moment, `want_batch` asks for a
    batch, with which state is loaded."""

    def __init__(
        self,
        views: StateViews,
        partition: int,
        partitions: int,
        committed: Callable[[], int],
        clock_ms: Callable[[], int],
        pause: Callable[[], None],
        want_batch: Callable[[], None],
    ) -> None:
        self._views = views
        self._partition = partition
        self._partitions = partitions
        self._committed = committed
        self._clock_ms = clock_ms
        self._pause = pause
        self._want_batch = want_batch
        self._readers: dict[str, _Reader] = {}

    def get(self, content: object) -> dict[str, Any]:
        """Return the content of ANSWER for that of GET. All results are from the version that one batch
        left. Raises ValueError if the content is not a look-up."""
        if not isinstance(content, dict) or not isinstance(content.get("keys"), list):
            raise ValueError("a look-up names a state and a list of keys")
        keys: list[Any] = content["keys"]
        if len(keys) > MAX_KEYS:
            raise ValueError(f"{len(keys)} keys in one look-up; at most {MAX_KEYS} are allowed")
        reader = self._reader(content.get("state"))
        if reader is None:
            known = ", ".join(sorted(self._views.states)) or "none"
            text = f"there is no queryable state '{content.get('state')}'; there are: {known}"
            return {"epoch": -1, "results": [[Status.UNKNOWN_STATE, text]] * len(keys)}
        questions = [
            self._question(reader, key, content.get("entry", _WHOLE), "entry" in content)
            for key in keys
        ]
        for tries in range(_TRIES):
            if tries:
                self._pause()
            epoch = max(self._committed(), self._views.newest_epoch - 1)
            found = self._read_all(reader, questions, epoch)
            if Unreadable.MOVING not in found and Unreadable.AHEAD not in found:
                break
        if Unreadable.NOT_LOADED in found:
            self._want_batch()
        now_ms = self._clock_ms()
        results = [reader.result(q, f, now_ms) for q, f in zip(questions, found, strict=True)]
        return {"epoch": epoch, "results": results}

    def _reader(self, name: object) -> _Reader | None:
        declared = self._views.states.get(name) if isinstance(name, str) else None
        if declared is None:
            return None
        reader = self._readers.get(declared.name)
        if reader is None:
            reader = self._readers[declared.name] = _Reader(declared)
        return reader

    def _question(self, reader: _Reader, key: object, entry: object, has_entry: bool) -> _Question:
        question = _Question()
        try:
            if has_entry:
                question.entry = reader.entry(entry)
            question.key = key_from_json(key, reader.key_schema)
            number = key_group_of(question.key, reader.declared.max_parallelism)
            hash(question.key)
        except (MillpondError, TypeError, ValueError, RecursionError) as problem:
            question.result = [Status.FAILED, f"{reader.title}: {problem}"]
            return question
        declared = reader.declared
        subtask = subtask_of(number, declared.parallelism, declared.max_parallelism)
        partition = subtask % self._partitions
        if partition != self._partition:
            text = f"the key belongs to partition {partition}, this is {self._partition}"
            question.result = [Status.ELSEWHERE, text]
        question.shard = number if declared.by_key_group else subtask
        return question

    def _read_all(self, reader: _Reader, questions: list[_Question], epoch: int) -> list[Any]:
        if not self._views.is_exclusive or self._views.lock is None:
            return [self._read(reader, question, epoch) for question in questions]
        if not self._views.lock.acquire(timeout=_LOCK_S):
            return [Unreadable.MOVING] * len(questions)
        try:
            return [self._read(reader, question, epoch) for question in questions]
        finally:
            self._views.lock.release()

    def _read(self, reader: _Reader, question: _Question, epoch: int) -> Any:
        if question.result is not None:
            return MISSING
        name, key, entry = reader.declared.descriptor.name, question.key, question.entry

        def take(state: ShardState, committed: bool, clock: int) -> Any:
            table: Any = state.tables.get(name)
            if table is None:
                return MISSING, clock
            if name not in state.readable:
                return Unreadable.NOT_LOADED
            if entry is _WHOLE:
                return table.look_up(key, committed), clock
            return table.look_up_entry(key, entry, committed), clock

        try:
            return self._views.read((reader.declared.task, question.shard), epoch, take)
        except Exception as problem:  # whatever a user's own backend raises
            question.result = [Status.FAILED, f"{reader.title} cannot be read: {problem!r}"]
            return MISSING


class _Question:
    """One key of a look-up. `result` is set if it is known without reading."""

    __slots__ = ("entry", "key", "result", "shard")

    def __init__(self) -> None:
        self.key: object = None
        self.entry: object = _WHOLE
        self.shard = 0
        self.result: Result | None = None


class _Reader:
    """Makes JSON of what rests in the tables of one state."""

    def __init__(self, declared: QueryableState) -> None:
        self.declared = declared
        # A copy, because the thread that works may be using the descriptor's functions.
        self._descriptor = _copied(declared.descriptor)
        self.title = (
            f"queryable state '{declared.name}' (state '{declared.descriptor.name}' of operator "
            f"'{declared.operator.name}')"
        )
        key_type = declared.key_type
        self.key_schema = None if key_type is None else schema_of(key_type)
        self._spec = spec_of(self._descriptor.kind)
        entry_type = self._spec.entry_type(self._descriptor)
        self._entry_schema = None if entry_type is None else schema_of(entry_type)
        self._clock = _ReadClock()
        config = self._descriptor.ttl_config
        self._expiry = None if config is None else Expiry(config, self._clock)

    def entry(self, data: object) -> object:
        if self._entry_schema is None:
            raise QueryableStateError(
                f"it is {self._descriptor.kind.value} state, which has no entries"
            )
        entry = key_from_json(data, self._entry_schema)
        hash(entry)
        return entry

    def result(self, question: _Question, found: Any, now_ms: int) -> Result:
        if question.result is not None:
            return question.result
        if found is Unreadable.OUTDATED:
            return [Status.ELSEWHERE, found.value]
        if isinstance(found, Unreadable):
            return [Status.RETRY, found.value]
        content, self._clock.watermark = found
        self._clock.processing_time_ms = now_ms
        try:
            value = self._value(question, content)
            if value is MISSING:
                return [Status.NOT_FOUND, None]
            return [Status.FOUND, value_to_json(value)]
        except Exception as problem:  # whatever get_result of a user's function raises
            text = str(problem) if isinstance(problem, MillpondError) else repr(problem)
            return [Status.FAILED, f"{self.title}, key {question.key!r}: {text}"]

    def _value(self, question: _Question, content: object) -> object:
        if content is MISSING:
            return MISSING
        opened = partial(self._opened, question.key)
        if question.entry is not _WHOLE:
            return opened(content)
        return self._spec.look_up_value(self._descriptor, content, opened)

    def _opened(self, key: object, value: Any) -> object:
        """Return a value as functions see it, or MISSING if it has expired."""
        if self._expiry is not None:
            time_ms, value = value
            if self._expiry.is_expired(key, time_ms):
                return MISSING
        return codec.thaw(value)


class _ReadClock:
    """The time of a look-up: event time as the state has it, processing time as it is now."""

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.processing_time_ms = 0

    @property
    def event_time(self) -> int | None:
        return None


def _copied(descriptor: StateDescriptor) -> StateDescriptor:
    try:
        copy: StateDescriptor = codec.loads(codec.dumps(descriptor))
    except Exception:  # a function that holds something that cannot be pickled
        return descriptor
    return copy


def description(declared: QueryableState) -> dict[str, Any]:
    """Return what clients must know of a state, as JSON."""
    descriptor, key_type = declared.descriptor, declared.key_type
    entry_type = spec_of(descriptor.kind).entry_type(descriptor)
    entry_schema = None if entry_type is None else schema_of(entry_type)
    key_schema = None if key_type is None else schema_of(key_type)
    return {
        "operator": declared.operator.name,
        "uid": declared.operator.uid,
        "state": descriptor.name,
        "kind": descriptor.kind.value,
        "task": declared.task,
        "key-type": None if key_schema is None or is_pickled(key_schema) else key_schema,
        "entry-type": None if entry_schema is None or is_pickled(entry_schema) else entry_schema,
        "max-parallelism": declared.max_parallelism,
        "parallelism": declared.parallelism,
    }
