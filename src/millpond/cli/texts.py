"""How numbers, times and tables look on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence


def size_text(count: float) -> str:
    """Return a number of bytes in a readable unit, powers of 1000: 1234567 -> 1.2 MB."""
    unit = "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if count < 1000:
            break
        count, unit = count / 1000, larger
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"


def time_text(time_ms: int) -> str:
    """Return a time, given in ms since 1970, in the local time zone: 2026-11-16 09:05:00."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))


def duration_text(duration_ms: int) -> str:
    """Return a duration with its two largest units: 3723000 -> 1h 02m; 65000 -> 1m 05s; 4200 -> 4s."""
    seconds = max(0, duration_ms) // 1000
    for larger, unit, smaller, rest in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= larger:
            return f"{seconds // larger}{unit} {seconds % larger // smaller:02d}{rest}"
    return f"{seconds}s"


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with a head line, its columns as wide as their contents; no line has trailing space."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
