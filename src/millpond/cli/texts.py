"""How numbers look on a terminal."""

from __future__ import annotations

import time


def size_text(count: float) -> str:
    """1234567 -> 1.2 MB."""
    unit = "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if count < 1000:
            break
        count, unit = count / 1000, larger
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"


def time_text(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
