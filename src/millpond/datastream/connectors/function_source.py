"""A source written as a function, which runs in a thread of the driver."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import cloudpickle

from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import (
    CheckpointListener,
    RuntimeContext,
    SourceContext,
    SourceFunction,
)
from millpond.datastream.operator_state import SourceLists, operator_state_of
from millpond.errors import JobExecutionError, MillpondError

_JOIN_S = 5.0
_CAPACITY = 100_000
Emitted = tuple[Any, int | None]


class _Cancelled(BaseException):
    """Leaves a source function's `run` when the job ends, even through its `except Exception`."""


class _CheckpointLock(AbstractContextManager["_CheckpointLock"]):
    """Held while a record is emitted, by the function or by `collect`.

    Acquiring it waits until there is room for more records. So nobody who holds it waits for room, and a
    snapshot is always possible.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._holds = 0
        self.records: deque[Emitted] = deque()
        self.capacity = _CAPACITY
        self.is_cancelled = False

    def __enter__(self) -> _CheckpointLock:
        self._changed.acquire()
        if self._holds == 0:
            while len(self.records) >= self.capacity and not self.is_cancelled:
                self._changed.wait()
            if self.is_cancelled:
                self._changed.release()
                raise _Cancelled
        self._holds += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._holds -= 1
        self._changed.release()

    def take(self, count: int | None, capacity: int, and_then: Callable[[], None]) -> list[Emitted]:
        """Take `count` records, or all if it is None, and make room for `capacity`. Nothing is emitted
        meanwhile."""
        with self._changed:
            records = self.records
            taken = [
                records.popleft()
                for _ in range(len(records) if count is None else min(count, len(records)))
            ]
            self.capacity = capacity
            and_then()
            self._changed.notify_all()
        return taken

    def do(self, action: Callable[[], None]) -> None:
        with self._changed:
            action()

    def cancel(self) -> None:
        with self._changed:
            self.is_cancelled = True
            self._changed.notify_all()


class _Context(SourceContext):
    def __init__(self, skip: int, available: threading.Event) -> None:
        self.lock = _CheckpointLock()
        self._skip = skip
        self._available = available

    def collect(self, value: object) -> None:
        self._put(value, None)

    def collect_with_timestamp(self, value: object, timestamp: int) -> None:
        self._put(value, timestamp)

    def is_cancelled(self) -> bool:
        return self.lock.is_cancelled

    def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
        return self.lock

    def _put(self, value: object, timestamp: int | None) -> None:
        if self._skip > 0:
            self._skip -= 1
            return
        with self.lock:
            self.lock.records.append((value, timestamp))
        self._available.set()


class _FunctionEnumerator(SplitEnumerator):
    """Runs the function and hands out what it has emitted.

    The snapshot of a function that keeps state is taken together with the records that are handed out, so the
    two always match.
    """

    def __init__(self, function: SourceFunction, context: RuntimeContext) -> None:
        super().__init__()
        # A copy, because that of the last attempt may be cancelled or half-way through.
        self._function: SourceFunction = cloudpickle.loads(cloudpickle.dumps(function))
        self._runtime_context = context
        self._thread: threading.Thread | None = None
        self._given_out = 0
        self._context: _Context | None = None
        self._done = threading.Event()
        self._failure: BaseException | None = None
        self._keeper = operator_state_of(self._function)
        self._saved: object = None  # the function's state at the last snapshot
        self._lists: SourceLists | None = None
        self._complete = -1  # the newest checkpoint that the function was told of

    def start(self) -> None:
        can_skip = self._function.deterministic and self._saved is None
        self._context = _Context(self._given_out if can_skip else 0, self.available)
        if self._keeper is not None:
            assert self.open_lists is not None
            self._context.lock.capacity = 0  # until `poll` says how much a batch may read
            name = self._runtime_context.get_task_name()
            self._lists = self.open_lists(self._keeper, name, self._saved)
            self._call("initialize_state", self._lists.initialize)
        self._thread = threading.Thread(target=self._run, name="millpond-source", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        assert self._context is not None
        try:
            self._function.open(self._runtime_context)
            try:
                self._function.run(self._context)
            finally:
                self._function.close()
        except _Cancelled:
            pass
        except BaseException as problem:  # handed to the thread that polls
            self._failure = problem
        finally:
            self._done.set()
            self.available.set()

    def split_count(self) -> int:
        return 1

    def poll(self, max_records: int) -> list[SplitWork]:
        if self._failure is not None:
            raise self._failed("run", self._failure) from self._failure
        assert self._context is not None
        if self._lists is None:
            chunk = self._context.lock.take(max_records, _CAPACITY, lambda: None)
        else:
            capacity = min(max_records, _CAPACITY)
            chunk = self._context.lock.take(None, capacity, self._save)
        self._given_out += len(chunk)
        return [SplitWork(0, chunk)] if chunk else []

    def _save(self) -> None:
        lists = self._lists
        assert lists is not None
        self._call("snapshot_state", lambda: lists.snapshot(*self.checkpoint))
        self._saved = lists.content()

    def committed(self, epoch: int) -> None:
        function = self._function
        if self._context is None or epoch <= self._complete:
            return
        self._complete = epoch
        if isinstance(function, CheckpointListener):
            tell = function.notify_checkpoint_complete
            name = "notify_checkpoint_complete"
            self._context.lock.do(lambda: self._call(name, lambda: tell(epoch)))

    def _call(self, method: str, action: Callable[[], None]) -> None:
        try:
            action()
        except MillpondError:
            raise
        except Exception as problem:
            raise self._failed(method, problem) from problem

    def _failed(self, method: str, problem: BaseException) -> JobExecutionError:
        return JobExecutionError(f"{type(self._function).__name__}.{method} failed: {problem!r}")

    def position(self) -> object:
        """Return how many records were handed out, with the lists of a function that keeps state."""
        if self._keeper is None:
            return self._given_out
        return {"given_out": self._given_out, "lists": self._saved}

    def restore(self, position: Any) -> None:
        if isinstance(position, dict):
            self._given_out, self._saved = position["given_out"], position["lists"]
        else:  # the position of a function that kept no state
            self._given_out, self._saved = position, None

    def ended(self) -> list[bool]:
        # `done` is read first, so that everything emitted before it is visible below.
        done = self._done.is_set() and self._failure is None
        return [done and self._context is not None and not self._context.lock.records]

    def backlog(self) -> int | None:
        """Return what the function has emitted; how much more it will emit is unknown."""
        return None if self._context is None else len(self._context.lock.records)

    def close(self) -> None:
        if self._context is not None and not self._done.is_set():
            self._context.lock.cancel()
            try:
                self._function.cancel()
            finally:
                if self._thread is not None:
                    self._thread.join(_JOIN_S)


class FunctionSource(Source):
    """Runs a user's SourceFunction.

    What it emits is written into the plan of a batch before the batch runs; only then does a record count as
    emitted.
    """

    bounded = False

    def __init__(self, function: SourceFunction) -> None:
        self._function = function

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _FunctionEnumerator(self._function, context)

    def read(self, arguments: list[Emitted]) -> Iterator[Emitted]:
        return iter(arguments)
