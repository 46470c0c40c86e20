"""The lists of a function without a key: given to it when it starts, filled at the end of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.core.codec import BlobKind, decode, dumps, freeze, loads
from millpond.datastream.operator_state import CheckpointedFunction, operator_state_of
from millpond.datastream.state import ListState
from millpond.engine.operators.user_errors import user_error
from millpond.state.operator_lists import UNION, InitializationContext, SnapshotContext

if TYPE_CHECKING:
    from millpond.engine.chain import OperatorChain


class OperatorState:
    """Of the root of a chain, if it is a CheckpointedFunction; else it does nothing."""

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
        """True if the function must not be opened yet: it is to know its state before, as in Flink."""
        return self._function is not None and not self._is_initialized

    def is_outdated(self, epoch: int, state_is_as_it_was: bool) -> bool:
        """True if what the function remembers in attributes is not what its lists say: it has seen this
        batch, which is run again, or others have run batches since."""
        if self._function is None or not self._is_initialized:
            return False
        return epoch <= self._epoch or not state_is_as_it_was

    def begin(self, epoch: int, unions: dict[int, bytes] | str | None = None) -> None:
        """The task is bound to its state. `unions`: see frames.Start."""
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
        """All records of the batch are through."""
        if self._function is not None:
            context = SnapshotContext(epoch, time_ms)
            self._call(self._function.snapshot_state, "snapshot_state", context)

    def changed_unions(self) -> bytes | None:
        """What others get of this subtask when they start anew, if it is new: the union lists at rest, with
        their types."""
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

    def _call(self, method: Any, name: str, context: Any) -> None:
        try:
            method(context)
        except Exception as problem:
            root = self._chain.root
            raise user_error(problem, root.name, self._chain.subtask, name, None) from None


def _read_unions(unions: dict[int, bytes] | str) -> list[dict[str, tuple[Any, list[Any]]]]:
    if isinstance(unions, str):
        with open(unions, "rb") as file:
            unions = decode(BlobKind.UNIONS, file.read(), unions)
    assert isinstance(unions, dict)
    return [loads(unions[subtask]) for subtask in sorted(unions)]
