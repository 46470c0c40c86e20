"""The memory of a slot: how much it uses, and its limit."""

from __future__ import annotations

import resource


def resident_mb() -> float:
    """Return how much memory this process uses now, in MB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / (1 << 20)


def limit_memory(limit_mb: int) -> None:
    """Have the kernel refuse more memory. This is the second line of defence, in between two checks."""
    limit = (limit_mb + 512) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
