"""Operator state: the lists of a function without a key. The function gets them when it starts, and fills
them at the end of each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from millpond.core.codec import BlobKind, decode, dumps, freeze, loads
from millpond.core.storage import read_object
from millpond.datastream.operator_state import CheckpointedFunction, operator_state_of
from millpond.datastream.state import ListState
from millpond.engine.operators.user_errors import user_error
from millpond.state.operator_lists import UNION, InitializationContext, SnapshotContext

if TYPE_CHECKING:
    from millpond.engine.chain import OperatorChain

C = TypeVar("C")


class OperatorState:
    """The operator state of the root of a chain, if it is a CheckpointedFunction; otherwise this is false,
    and does nothing."""

    def __init__(self, chain: OperatorChain) -> None:
        function = None if chain.task.keyed else operator_state_of(chain.root.plan.function)
        self._function: CheckpointedFunction | None = function
        self._chain = chain
        self._is_initialized = False
        self._unions: dict[str, ListState[Any]] = {}
        self._reported = b""
        self._epoch = -1

    def __bool__(self) -> bool:
        return self._function is not None

    @property
    def is_awaited(self) -> bool:
        """True if the function must not be opened yet, because it has to get its state first, as in Flink."""
        return self._function is not None and not self._is_initialized

    def is_outdated(self, epoch: int, state_is_as_it_was: bool) -> bool:
        """Return True if what the function remembers in attributes differs from what its lists say: it has
        seen this batch, which is run again, or batches have run elsewhere since."""
        if self._function is None or not self._is_initialized:
            return False
        return epoch <= self._epoch or not state_is_as_it_was

    def begin(self, epoch: int, unions: dict[int, bytes] | str | None = None) -> None:
        """Initialize and open the function, unless that has happened. Called when a batch begins, after the
        task has been bound to its state. For `unions`, see `controls.Start`."""
        if self._function is None:
            return
        self._epoch = epoch
        if not self._is_initialized:
            state = self._chain.clock.state
            assert state is not None
            known = _read_unions(unions) if unions else []
            is_restored = not state.is_empty() or bool(known)
            clock = self._chain.clock
            context = InitializationContext(state, clock.bound, is_restored, known, self._unions)
            self._call(self._function.initialize_state, "initialize_state", context)
            self._is_initialized = True
            self._chain.open()
            clock.bind(state)

    def end(self, epoch: int, time_ms: int) -> None:
        """Let the function save its state. Called after the last record of the batch."""
        if self._function is not None:
            context = SnapshotContext(epoch, time_ms)
            self._call(self._function.snapshot_state, "snapshot_state", context)

    def changed_unions(self) -> bytes | None:
        """Return the union lists of this subtask, encoded at rest with their types: what every subtask gets
        when it starts anew. None if there are none, or if they have not changed since the last call."""
        if not self._unions:
            return None
        state = self._chain.clock.state
        assert state is not None
        lists = {
            name: (state.types[UNION + name], list(map(freeze, handle.get())))
            for name, handle in self._unions.items()
        }
        encoded = dumps(lists)
        if encoded == self._reported:
            return None
        self._reported = encoded
        return encoded

    def _call(self, method: Callable[[C], object], name: str, context: C) -> None:
        try:
            method(context)
        except Exception as problem:
            root = self._chain.root
            raise user_error(problem, root.name, self._chain.subtask, name, None) from None


def _read_unions(unions: dict[int, bytes] | str) -> list[dict[str, tuple[Any, list[Any]]]]:
    if isinstance(unions, str):
        unions = decode(BlobKind.UNIONS, read_object(unions), unions)
    assert isinstance(unions, dict)
    return [loads(unions[subtask]) for subtask in sorted(unions)]
