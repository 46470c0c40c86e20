"""What an access to keyed state costs beside one to a dict, in nanoseconds.

.venv/bin/python bench/state_access.py
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

from millpond.common import Types
from millpond.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millpond.state.handles import CurrentKey, HashMapStateHandle, ValueStateHandle
from millpond.state.key_group_state import KeyGroupState

CALLS = 200_000


def main() -> None:
    current, state, plain = CurrentKey(), KeyGroupState(0), {"key": 5}
    current.key = "key"
    value = ValueStateHandle(ValueStateDescriptor("value", Types.LONG()), current)
    entries = HashMapStateHandle(MapStateDescriptor("map", Types.STRING(), Types.LONG()), current)
    for handle in (value, entries):
        handle.bind(state)
    value.update(5)
    entries.put("entry", 1)
    accesses: dict[str, Callable[[], Any]] = {
        "dict get": lambda: plain.get("key"),
        "dict set": lambda: plain.__setitem__("key", 6),
        "ValueState.value": value.value,
        "ValueState.update": lambda: value.update(6),
        "MapState.get": lambda: entries.get("entry"),
        "MapState.put": lambda: entries.put("entry", 2),
    }
    for name, access in accesses.items():
        seconds = min(timeit.repeat(access, number=CALLS, repeat=5)) / CALLS
        print(f"{name:18s} {seconds * 1e9:5.0f} ns")


if __name__ == "__main__":
    main()
