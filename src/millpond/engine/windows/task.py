"""Drives windows that take a batch's elements in at once: `Task`'s counterpart, used in the same way.

First all elements go into their windows, then the windows that have ended are fired, in the order of time.
That gives what element by element gives, because a window that has ended takes no more elements. State sees
only the windows that stay open beyond the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.core.bundle import Bundle
from millpond.engine.chain import OperatorChain
from millpond.engine.windows.batched import BatchedWindowOperator
from millpond.state.key_group_state import KeyGroupState


class WindowTask:
    """Bound to one key group at a time: `bind`, then `run` and the clocks, then `finish`."""

    def __init__(self, chain: OperatorChain) -> None:
        self.chain = chain
        self._clock = chain.clock
        assert isinstance(chain.root, BatchedWindowOperator)
        self._root: BatchedWindowOperator = chain.root

    def bind(self, state: KeyGroupState, watermark: int, processing_time_ms: int) -> None:
        self._clock.watermark = watermark
        self._clock.processing_time_ms = processing_time_ms
        self._clock.bind(state)
        self._root.begin()

    def reset(self) -> None:
        """After a failure: nothing of what was collected may come out later."""
        self._root.begin()
        self.chain.router.reset()
        self.chain.metrics.take()

    def run(self, bundle: Bundle, end_clock: int) -> None:
        clock = self._clock
        bundle = bundle.within(min(clock.watermark, end_clock), end_clock)
        self._guarded(self._root.take, bundle)
        last = bundle.clocks if isinstance(bundle.clocks, int) else int(bundle.clocks[-1])
        self.advance_watermark(last)

    def advance_watermark(self, watermark: int) -> None:
        """Fire the windows that end up to `watermark`, then stand there."""
        clock = self._clock
        if watermark > clock.watermark:
            self._guarded(self._root.fire, watermark)
            clock.watermark = watermark

    def advance_processing_time(self, processing_time_ms: int, after_records: bool = False) -> None:
        self._clock.processing_time_ms = processing_time_ms

    def _guarded(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of the user raises is told with the operator's name."""
        try:
            return step(*arguments)
        except Exception as problem:
            raise self._root.failed(problem, self._root.action, None) from None

    def finish(self) -> None:
        """Bring what is still open to state, and send the results of this key group down the chain."""
        self._root.send(self._guarded(self._root.settle).bundles())
