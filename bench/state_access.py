"""What an access to keyed state costs beside one to a dict, in nanoseconds, in one process without Spark."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from typing import Any

from millpond.common import Types
from millpond.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millpond.state.handles import CurrentKey, HashMapStateHandle, ValueStateHandle
from millpond.state.shard_state import ShardState

CALLS = 200_000


def measure(repeat: int) -> dict[str, dict[str, float]]:
    """Return the nanoseconds of each kind of access: median, smallest and largest."""
    current, state, plain = CurrentKey(), ShardState(0), {"key": 5}
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
    results = {}
    for name, access in accesses.items():
        times = [s / CALLS * 1e9 for s in timeit.repeat(access, number=CALLS, repeat=repeat)]
        results[name] = {
            "median_ns": statistics.median(times),
            "smallest_ns": min(times),
            "largest_ns": max(times),
        }
    return results


def table(results: dict[str, dict[str, float]]) -> str:
    """Return the results as a Markdown table."""
    lines = ["| access | ns (median) | smallest to largest |", "|---|---|---|"]
    for name, times in results.items():
        lines.append(
            f"| {name} | {times['median_ns']:.0f} "
            f"| {times['smallest_ns']:.0f} to {times['largest_ns']:.0f} |"
        )
    return "\n".join(lines)
