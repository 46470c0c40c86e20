"""The total over the panes of a sliding window, kept while it slides.

Panes come in at one end and go out at the other, and the total cannot be subtracted from. So the panes lie
in two stacks: `_back` has the newer ones and their total; `_front` has the older ones, each with the total
from it to the end of the stack. The total of all is then one merge away. When `_front` is used up, `_back`
is turned over into it: each pane is merged two or three times in its life, however many windows it is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.common.time import MIN_TIMESTAMP
from millpond.core.codec import freeze, thaw
from millpond.core.key_groups import order_of
from millpond.state.tables import MISSING

Merge = Callable[[Any, Any], Any]


def _order(own: tuple[Any, SlidingTotal]) -> Any:
    return own[1].order


class SlidingTotals:
    """Of all keys of a key group."""

    def __init__(self, merge: Merge) -> None:
        self.end = MIN_TIMESTAMP  # panes before that are in
        self._merge = merge
        self._totals: dict[Any, SlidingTotal] = {}
        self._is_sorted = True

    def add(self, key: Any, pane: int, content: Any) -> None:
        """Content at rest of the next pane of a key."""
        total = self._totals.get(key)
        if total is None:
            total = self._totals[key] = SlidingTotal()
            total.order = order_of(key)
            self._is_sorted = False
        total.add(pane, content, self._merge)

    def remove(self, key: Any) -> None:
        self._totals.pop(key, None)

    def of_window(self, start: int) -> dict[Any, Any]:
        """key -> the total of its panes from `start` on, in an order that depends on the keys alone."""
        if not self._is_sorted:
            self._totals = dict(sorted(self._totals.items(), key=_order))
            self._is_sorted = True
        merge = self._merge
        found = {key: total.total(start, merge) for key, total in self._totals.items()}
        for key in [key for key, total in found.items() if total is MISSING]:
            del found[key], self._totals[key]
        return found


class SlidingTotal:
    """Of one key. Totals are kept frozen, because `merge` may change what it is given."""

    __slots__ = ("_back", "_back_total", "_front", "order")

    def __init__(self) -> None:
        self.order: Any = None
        self._front: list[tuple[int, Any]] = []  # the oldest last
        self._back: list[tuple[int, Any]] = []
        self._back_total: Any = MISSING

    def add(self, pane: int, content: Any, merge: Merge) -> None:
        """The next pane that has content."""
        self._back.append((pane, content))
        if self._back_total is MISSING:
            self._back_total = content
        else:
            self._back_total = freeze(merge(thaw(self._back_total), thaw(content)))

    def total(self, start: int, merge: Merge) -> Any:
        """Over all panes from `start` on; MISSING if there are none. Older ones go."""
        front = self._front
        while front and front[-1][0] < start:
            front.pop()
        if not front:
            self._turn_over(start, merge)
            front = self._front
            return thaw(front[-1][1]) if front else MISSING
        older = thaw(front[-1][1])
        return older if self._back_total is MISSING else merge(older, thaw(self._back_total))

    def _turn_over(self, start: int, merge: Merge) -> None:
        total: Any = MISSING
        self._front = []
        for pane, content in reversed(self._back):
            if pane < start:
                break
            total = content if total is MISSING else freeze(merge(thaw(content), thaw(total)))
            self._front.append((pane, total))
        self._back, self._back_total = [], MISSING
