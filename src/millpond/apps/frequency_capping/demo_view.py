"""What the demo shows: a live view in the terminal, a report at the end, and a picture."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field

_BARS = " ▁▂▃▄▅▆▇█"
_WARM_UP_S = 5.0  # views pile up while Spark starts
_RECENT_S = 5.0
_SMOOTH_S = 3.0


@dataclass
class Row:
    """What one look at the job has found, `s` seconds after the first. `latencies_ms` are those of the caps
    since the look before, from view to Redis."""

    s: float
    records: int
    bad: int
    caps: int
    uncaps: int
    users: int
    behind_s: float
    latencies_ms: list[int] = field(default_factory=list)
    example: str = ""

    @property
    def capped(self) -> int:
        """How much is capped at the moment, of all users together."""
        return self.caps - self.uncaps


@dataclass
class Seen:
    """Everything that was found: one row for every look."""

    rows: list[Row] = field(default_factory=list)

    def recent(self) -> list[Row]:
        """Return the rows of the last 5 seconds. There must be at least one row."""
        last = self.rows[-1]
        return [row for row in self.rows if last.s - row.s <= _RECENT_S]

    def rate(self) -> float:
        """Return the records per second, over the last 5 seconds."""
        first, last = self.recent()[0], self.rows[-1]
        passed_s = last.s - first.s
        return (last.records - first.records) / passed_s if passed_s > 0 else 0.0

    def latencies_ms(self) -> list[int]:
        """Return the latencies of all caps except those of the first 5 seconds, when views pile up."""
        return [
            latency_ms for row in self.rows if row.s > _WARM_UP_S for latency_ms in row.latencies_ms
        ]


def percentile(values: Sequence[int], share: float) -> int:
    """Return the value that is as large as `share` of all values (0.5 for the median); 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def line(seen: Seen) -> str:
    """Return the newest row as one line, for output that does not go to a terminal."""
    row = seen.rows[-1]
    recent = [latency_ms for other in seen.recent() for latency_ms in other.latencies_ms]
    return (
        f"{row.s:5.1f} s  {seen.rate():7,.0f} views/s  {row.capped:6,} capped for {row.users:5,} users  "
        f"{row.caps:7,} caps  {row.uncaps:7,} releases  {row.bad:4,} bad  "
        f"event time {row.behind_s:4.1f} s behind  latency {percentile(recent, 0.5):5,} ms"
    )


def screen(seen: Seen, seconds: float) -> list[str]:
    """Return the lines for a terminal, cut to its width."""
    width = shutil.get_terminal_size().columns
    row = seen.rows[-1]
    recent = [latency_ms for other in seen.recent() for latency_ms in other.latencies_ms]
    latency = "no cap yet"
    if recent:
        latency = f"{percentile(recent, 0.5):,} ms (median), {percentile(recent, 0.99):,} ms (99 %)"
    bars = max(10, min(60, width - 38))
    medians: list[int] = []
    for earlier in seen.rows:  # between two batches nothing is new
        last = medians[-1] if medians else 0
        medians.append(percentile(earlier.latencies_ms, 0.5) if earlier.latencies_ms else last)
    counts = [row.capped for row in seen.rows]
    lines = [
        f"  {row.s:.0f} of {seconds:.0f} s",
        f"  views          {seen.rate():,.0f} a second; {row.records:,} so far, {row.bad:,} of them broken",
        f"  capped now     {row.capped:,} for {row.users:,} users; "
        f"{row.caps:,} caps, {row.uncaps:,} releases so far",
        f"  event time     {row.behind_s:.1f} s behind the clock",
        f"  view to Redis  {latency}",
        f"  right now      {row.example or 'nothing is capped'}",
        "",
        f"  capped         {_bars(counts, bars)}  most {max(counts):,}",
        f"  latency        {_bars(medians, bars)}  most {max(medians):,} ms",
    ]
    return [line[: width - 1] for line in lines]


def _bars(values: list[int], width: int) -> str:
    values = values[-width:]
    most = max(values, default=0) or 1
    text = "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in values)
    return text.ljust(width)


def report(seen: Seen) -> str:
    """Return a summary of the whole run, for the end."""
    last = seen.rows[-1]
    text = (
        f"{last.records:,} views, {last.bad:,} of them broken (counted and kept as dead letters).\n"
        f"{last.caps:,} caps, {last.uncaps:,} releases; at most "
        f"{max(row.capped for row in seen.rows):,} capped at once."
    )
    latencies_ms = seen.latencies_ms()
    if latencies_ms:
        text += (
            f"\nFrom a view to its cap in Redis: {percentile(latencies_ms, 0.5):,} ms (median), "
            f"{percentile(latencies_ms, 0.99):,} ms (99 %), after the first {_WARM_UP_S:g} s."
        )
    return text


def _rates(rows: list[Row], name: str) -> list[float]:
    """Return how fast a count grew in the seconds before each row, because looks come more often than
    batches."""
    found = []
    for row in rows:
        first = next(earlier for earlier in rows if row.s - earlier.s <= _SMOOTH_S)
        grown = getattr(row, name) - getattr(first, name)
        found.append(grown / (row.s - first.s) if row.s > first.s else 0.0)
    return found


def draw(seen: Seen, path: str, title: str) -> str:
    """Draw a picture of the run to a file, and return a sentence that says so, or that matplotlib is
    missing."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return "No picture was drawn, because matplotlib is not installed: pip install matplotlib."
    figure, (above, middle, below) = pyplot.subplots(
        3, 1, figsize=(9, 7.5), sharex=True, layout="constrained"
    )
    at = [row.s for row in seen.rows]
    figure.suptitle(title)
    above.fill_between(at, [row.capped for row in seen.rows], color="#c44", alpha=0.35)
    above.plot(at, [row.capped for row in seen.rows], color="#c44")
    above.set_ylabel("capped now")
    for name, color, label in (("caps", "#c44", "capped"), ("uncaps", "#4a4", "released")):
        middle.plot(at, _rates(seen.rows, name), color=color, label=label)
    middle.set_ylabel("per second")
    middle.legend(loc="upper left", frameon=False)
    told = [row for row in seen.rows if row.latencies_ms]
    for share, color, label in ((0.99, "#9bf", "99 %"), (0.5, "#36c", "median")):
        values = [percentile(row.latencies_ms, share) for row in told]
        below.plot([row.s for row in told], values, color=color, label=label)
    below.set_ylabel("view to Redis, ms")
    below.set_xlabel("seconds since the first views were read")
    if told:
        below.legend(loc="upper right", frameon=False)
    for axes in (above, middle, below):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return f"There is a picture in {path}."
