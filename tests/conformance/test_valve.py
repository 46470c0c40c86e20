"""C5-C11: the watermark valve and the bounded generator."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.common import Duration, WatermarkOutput, WatermarkStrategy
from millpond.common.time import MIN_TIMESTAMP
from millpond.engine.time.valve import WatermarkValve

# Each step is (channel, watermark | "idle" | "active", expected output)
CASES: dict[str, tuple[int, list[tuple[int, Any, int | None]]]] = {
    "C5": (3, [(0, 15, None), (1, 10, None), (2, "idle", 10), (1, 18, 15), (0, 20, 18)]),
    "C6": (
        3,
        [(0, 25, None), (1, 10, None), (2, 17, 10), (1, "idle", 17), (2, "idle", 25)],
    ),
    "C7": (
        3,
        [(0, 10, None), (1, 5, None), (2, 3, 3)]
        + [(0, "idle", None), (1, "idle", None), (2, "idle", 10)],
    ),
    "C8": (
        3,
        [(0, 10, None), (1, 7, None), (2, 3, 3), (2, "idle", 7), (2, "active", None)]
        + [(2, 5, None), (2, 9, None), (1, 12, 9)],
    ),
    "C9": (
        1,
        [(0, 25, 25), (0, "idle", None), (0, 50, None), (0, "active", None), (0, 50, 50)]
        + [(0, 40, None)],
    ),
    "C10": (
        3,
        [(0, 10, None), (1, 7, None), (2, "idle", 7), (2, "active", None)]
        + [(0, "idle", None), (1, "idle", None)],
    ),
}


@pytest.mark.parametrize("resume", [False, True], ids=["kept", "resumed after every step"])
@pytest.mark.parametrize("case", CASES)
def test_valve(case: str, resume: bool) -> None:
    """Also when the valve is handed from batch to batch, as tasks do with it."""
    inputs, steps = CASES[case]
    valve = WatermarkValve(inputs)
    for channel, event, expected in steps:
        if event in ("idle", "active"):
            output = valve.status(channel, event == "active")
        else:
            output = valve.watermark(channel, event)
        assert output == expected, f"{case}: channel {channel}, {event}"
        if resume:
            valve = WatermarkValve.resumed(valve.output, valve.channels())
    if case == "C7":
        assert valve.idle


def test_c11_bounded_out_of_orderness() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(10))
    generator, output = strategy.create_generator(), WatermarkOutput()
    generator.on_periodic_emit(output)
    assert output.watermark == MIN_TIMESTAMP
    for timestamp, expected in [(100, 89), (90, 89), (110, 99)]:
        generator.on_event(None, timestamp, output)
        generator.on_periodic_emit(output)
        assert output.watermark == expected


def test_c11_monotonous_timestamps_are_a_bound_of_zero() -> None:
    generator = WatermarkStrategy.for_monotonous_timestamps().create_generator()
    output = WatermarkOutput()
    generator.on_event(None, 7, output)
    generator.on_periodic_emit(output)
    assert output.watermark == 6
