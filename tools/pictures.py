"""Draws the pictures of docs/guide/time.md from real runs.

.venv/bin/python tools/pictures.py    (needs matplotlib: pip install -e '.[bench]')
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from millpond.common import Duration, Time, Types, WatermarkStrategy
from millpond.datastream import OutputTag, ProcessFunction, ProcessWindowFunction
from millpond.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millpond.testing import MarkedSource, direct_environment

FOLDER = Path(__file__).parent.parent / "docs" / "guide"
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
WINDOWS = {
    "tumbling": TumblingEventTimeWindows.of(Time.seconds(20)),
    "sliding": SlidingEventTimeWindows.of(Time.seconds(30), Time.seconds(15)),
    "session": EventTimeSessionWindows.with_gap(Time.seconds(8)),
}


def records() -> list[tuple[int, int]]:
    """(number of arrival, seconds of event time): out of order by some seconds, two far too late, and a
    pause after the thirtieth."""
    chance = random.Random(3)
    times = [n * 2 + (20 if n > 30 else 0) - chance.choice([0, 0, 1, 3, 6]) for n in range(45)]
    times[25], times[40] = 12, 50
    return list(enumerate(times))


class Seen(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield ("seen", *value, ctx.timer_service().current_watermark() / 1000)


class Window(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        yield ("window", window.start / 1000, window.end / 1000, len(list(elements)))


def run(kind: str) -> list[Any]:
    """What a real job says: records with the watermark they met, windows, late records."""
    environment = direct_environment({"parallelism.default": 1})
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(5)
    ).with_timestamp_assigner(lambda record, _: record[1] * 1000)
    stream = environment.from_source(MarkedSource(records()), strategy, "records")
    windows = stream.key_by(lambda _: 0).window(WINDOWS[kind]).side_output_late_data(LATE)
    results = windows.process(Window())
    late = results.get_side_output(LATE).map(lambda record: ("late", *record))
    return list(stream.process(Seen()).union(results, late).execute_and_collect())


def draw(kind: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = kind
    from matplotlib import pyplot

    facts = run(kind)
    seen = sorted(fact[1:] for fact in facts if fact[0] == "seen")
    late = {fact[1] for fact in facts if fact[0] == "late"}
    windows = sorted(fact[1:] for fact in facts if fact[0] == "window")
    figure, axes = pyplot.subplots(figsize=(9, 5))
    for number, (start, end, count) in enumerate(windows):
        lane = 46.5 + 2.2 * (number % 2 if kind == "sliding" else 0)
        colour = ("#9ec5e0", "#5b9bc4")[number % 2]
        axes.plot([lane, lane], [start, end], lw=6, color=colour, solid_capstyle="butt")
        axes.axhline(start, color="#dddddd", lw=0.8, zorder=0)
        axes.text(lane + 0.6, (start + end) / 2, str(count), va="center", fontsize=9)
    on_time = [(n, t) for n, t, _ in seen if n not in late]
    axes.scatter(*zip(*on_time, strict=True), s=22, color="#2a6f97", label="record", zorder=3)
    if late:
        points = [(n, t) for n, t, _ in seen if n in late]
        axes.scatter(*zip(*points, strict=True), marker="x", color="#c0392b", label="late record")
    marks = [(n, max(w, -8)) for n, _, w in seen]
    axes.step(*zip(*marks, strict=True), where="post", color="#e08e0b", label="watermark")
    axes.set_xlabel("order of arrival")
    axes.set_ylabel("event time, seconds")
    axes.set_title(f"{kind} windows; bars at the right: windows and their numbers of records")
    axes.legend(loc="upper left", frameon=False)
    axes.set_xlim(-1, 51)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    pyplot.close(figure)


if __name__ == "__main__":
    for name in WINDOWS:
        draw(name, FOLDER / f"{name}.svg")
        print(f"wrote {FOLDER / name}.svg")
