"""Which key groups the keys of a table belong to, and how columns are split by key group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy

from millpond.core.columns import Numbers, take_list
from millpond.core.key_groups import key_group_of, key_groups_of
from millpond.errors import ProgramError

# How the names of states begin that have no key: every shard has its own copy. They are small, and so stay in
# memory.
WITHOUT_KEY = ("_broadcast.", "_operator.", "_union.", "_watermark")
WINDOW_STATES = ("_window.", "_window_state.", "_trigger.")
"""How the names of states begin whose table is by (key, window)."""
PANES = "_panes"
"""The state of windows that are put together from panes: a map from pane to key to content."""
Parts = dict[int, tuple[list[Any], ...]]
"""key group -> columns"""


def is_reserved(name: str) -> bool:
    """Return whether a state of this name would be taken for one that is not simply by key."""
    return name == PANES or name.startswith((*WITHOUT_KEY, *WINDOW_STATES))


@dataclass(frozen=True)
class Grouping:
    """The key groups of a shard that has several, and where the keys are in a table."""

    key_groups: range
    max_parallelism: int
    in_windows: bool = False
    """True if what a table is by is (key, window)."""
    by_entry: bool = False
    """True if the entries of a map are the keys."""

    def of_state(self, name: str) -> Grouping:
        """Return the grouping for the table of a state."""
        return replace(self, in_windows=name.startswith(WINDOW_STATES), by_entry=name == PANES)

    def numbers(self, keys: list[Any]) -> Numbers:
        """Return the key group of each key."""
        if self.in_windows:
            keys = list(map(itemgetter(0), keys))
        found = key_groups_of(keys, self.max_parallelism)
        if found is None:
            each = (key_group_of(key, self.max_parallelism) for key in keys)
            found = numpy.fromiter(each, numpy.int64, len(keys))
        return found

    def split(self, keys: list[Any], *columns: list[Any], with_keys: bool = True) -> Parts:
        """Return columns by the key groups of `keys`, which are the first column if `with_keys`. The order
        within a key group stays."""
        if not keys:
            return {}
        numbers = self.numbers(keys)
        order = numpy.argsort(numbers, kind="stable")
        columns = (keys, *columns) if with_keys else columns
        ordered = [take_list(column, order) for column in columns]
        found, starts = numpy.unique(numbers[order], return_index=True)
        groups, ends = found.tolist(), [*starts[1:].tolist(), len(keys)]
        if groups[0] not in self.key_groups or groups[-1] not in self.key_groups:
            raise self._strange(keys, numbers)
        return {
            group: tuple(column[start:end] for column in ordered)
            for group, start, end in zip(groups, starts.tolist(), ends, strict=True)
        }

    def _strange(self, keys: list[Any], numbers: Numbers) -> ProgramError:
        owners = zip(keys, numbers.tolist(), strict=True)
        key = next(key for key, number in owners if number not in self.key_groups)
        return ProgramError(
            f"The key {key!r} does not belong to this subtask any more: its hash has changed. Keys, and what "
            "they are made of, must not change."
        )


def side_by_side(*sides: tuple[int, Parts]) -> Parts:
    """Return, for each key group, the columns of all sides; empty ones where a side has nothing. A side is
    the number of its columns and the columns."""
    groups = dict.fromkeys(group for _, parts in sides for group in parts)
    joined: Parts = {}
    for group in groups:
        columns: list[list[Any]] = []
        for width, parts in sides:
            columns += parts.get(group) or [[] for _ in range(width)]
        joined[group] = tuple(columns)
    return joined
