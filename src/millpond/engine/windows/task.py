"""The counterpart of `Task` for windows that take in all elements of a batch at once. It is called in the
same way.

First all elements go into their windows, then the windows that have ended are fired, in the order of time.
The results are the same as element by element, because a window that has ended takes no more elements. Only
windows that stay open beyond the batch are written to the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from millpond.core.bundle import Bundle
from millpond.engine.chain import OperatorChain
from millpond.engine.windows.batched import BatchedWindowOperator
from millpond.state.shard_state import ShardState

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class WindowTask:
    """An opened chain, bound to one shard at a time. For each shard, call `bind`, then `run` and the
    methods that advance the clocks, then `finish`, which sends the results down the chain."""

    def __init__(self, chain: OperatorChain) -> None:
        self.chain = chain
        self._clock = chain.clock
        assert isinstance(chain.root, BatchedWindowOperator)
        self._root: BatchedWindowOperator = chain.root

    def bind(self, state: ShardState, watermark: int, processing_time_ms: int) -> None:
        """Turn to a shard, with the clocks at the given times."""
        self._clock.watermark = watermark
        self._clock.processing_time_ms = processing_time_ms
        self._clock.bind(state)
        self._root.begin()

    def reset(self) -> None:
        """Forget what was collected, so that it does not come out later. Called after a failure."""
        self._root.begin()
        self.chain.router.reset()
        self.chain.metrics.take()

    def run(self, bundle: Bundle, end_clock: int) -> None:
        """Put elements into their windows, and fire the windows that have ended when the last one comes."""
        clock = self._clock
        bundle = bundle.within(min(clock.watermark, end_clock), end_clock)
        self._guarded(self._root.take, bundle)
        last = bundle.clocks if isinstance(bundle.clocks, int) else int(bundle.clocks[-1])
        self.advance_watermark(last)

    def advance_watermark(self, watermark: int) -> None:
        """Fire the windows that end at or before `watermark`, and leave the clock there."""
        clock = self._clock
        if watermark > clock.watermark:
            self._guarded(self._root.fire, watermark)
            clock.watermark = watermark

    def advance_processing_time(self, processing_time_ms: int, after_records: bool = False) -> None:
        """Set the processing time. These windows have no processing-time timers."""
        self._clock.processing_time_ms = processing_time_ms

    def _guarded(self, step: Callable[[*Ts], R], *arguments: *Ts) -> R:
        """Call a method of the root. Add the name of the operator to what a user's function raises."""
        try:
            return step(*arguments)
        except Exception as problem:
            raise self._root.failed(problem, self._root.action, None) from None

    def finish(self) -> None:
        """Write what is still open to the state, and send the results of this shard down the chain."""
        self._root.send(self._guarded(self._root.settle).bundles())
