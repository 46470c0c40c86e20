"""The total over the panes of a sliding window, kept up to date while the window slides.

Panes come in at one end and go out at the other, and nothing can be subtracted from the total. So the panes
are in two stacks: `_back` has the newer ones and their total; `_front` has the older ones, each with the
total from it to the end of the stack. The total of all panes is then one merge away. When `_front` is used
up, `_back` is turned over into it. So each pane is merged two or three times in its life, however many
windows it is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.common.time import MIN_TIMESTAMP
from millpond.core.codec import freeze, thaw
from millpond.core.key_groups import order_of
from millpond.state.tables import MISSING

Merge = Callable[[Any, Any], Any]


def _order(entry: tuple[object, SlidingTotal]) -> tuple[int, str, str]:
    return entry[1].order


class SlidingTotals:
    """The totals of all keys of a shard."""

    def __init__(self, merge: Merge) -> None:
        self.end = MIN_TIMESTAMP  # panes that begin before this time have been added
        self._merge = merge
        self._totals: dict[Any, SlidingTotal] = {}
        self._is_sorted = True

    def add(self, key: object, pane: int, content: object) -> None:
        """Add the content at rest of the next pane of a key. Panes must come in order."""
        total = self._totals.get(key)
        if total is None:
            total = self._totals[key] = SlidingTotal()
            total.order = order_of(key)
            self._is_sorted = False
        total.add(pane, content, self._merge)

    def remove(self, key: object) -> None:
        """Forget the total of a key."""
        self._totals.pop(key, None)

    def of_window(self, start: int) -> dict[Any, Any]:
        """Return the total of each key's panes from `start` on, in an order that depends only on the keys.
        Keys without such panes are left out. `start` must not go back."""
        if not self._is_sorted:
            self._totals = dict(sorted(self._totals.items(), key=_order))
            self._is_sorted = True
        merge = self._merge
        found = {key: total.total(start, merge) for key, total in self._totals.items()}
        for key in [key for key, total in found.items() if total is MISSING]:
            del found[key], self._totals[key]
        return found


class SlidingTotal:
    """The total of one key. Totals are kept frozen, because `merge` may change what it is given."""

    __slots__ = ("_back", "_back_total", "_front", "order")

    def __init__(self) -> None:
        self.order = (0, "", "")  # of the key among others; set by SlidingTotals
        self._front: list[tuple[int, Any]] = []  # the oldest last
        self._back: list[tuple[int, Any]] = []
        self._back_total: object = MISSING

    def add(self, pane: int, content: object, merge: Merge) -> None:
        """Add the next pane that has content, at rest."""
        self._back.append((pane, content))
        if self._back_total is MISSING:
            self._back_total = content
        else:
            self._back_total = freeze(merge(thaw(self._back_total), thaw(content)))

    def total(self, start: int, merge: Merge) -> object:
        """Return the total of all panes from `start` on, or MISSING if there are none. Drop older panes."""
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
        total: object = MISSING
        self._front = []
        for pane, content in reversed(self._back):
            if pane < start:
                break
            total = content if total is MISSING else freeze(merge(thaw(content), thaw(total)))
            self._front.append((pane, total))
        self._back, self._back_total = [], MISSING
