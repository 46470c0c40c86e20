"""Results as a table on screen, JSON in a file, and a plot."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

# Ratios of Millpond with slots to these systems; what we want to reach.
GOALS = {
    "flink-hashmap": 1.3,
    "flink-rocksdb": 3.0,
    "transform-with-state": 40.0,
    "pyflink": 60.0,
}


def machine() -> str:
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":")[1].strip()
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{os.cpu_count()} cores ({model}), {memory_gb:.0f} GB, Python {platform.python_version()}"
    )


def is_before(result: dict[str, Any]) -> bool:
    """Return whether this is Millpond in another checkout."""
    return str(result["key"]).endswith("-before")


def capping_table(results: list[dict[str, Any]]) -> str:
    """A Markdown table: also what the README shows."""
    speeds = {result["key"]: result["events_per_s"] for result in results}
    ours = speeds.get("millpond")
    lines = [
        "| system | events/s (median) | smallest to largest | Millpond is | peak memory |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        speed = result["events_per_s"]
        if speed is None:
            lines.append(f"| {result['name']} | failed | {result['spread']} | | |")
            continue
        own = speeds.get(result["key"].removesuffix("-before")) if is_before(result) else ours
        ratio = f"{own / speed:.2f}x" if own and result["key"] != "millpond" else ""
        if result["key"] == "millpond-columns":
            flink = speeds.get("flink-hashmap")
            ratio = f"this is {speed / flink:.2f}x Flink's (goal 3x)" if flink else ""
        goal = GOALS.get(result["key"])
        if goal and ours:
            ratio += f" (goal {goal:g}x)"
        lines.append(
            f"| {result['name']} | {speed:,.0f} | {result['spread']} | {ratio} "
            f"| {result['peak_mb']:,.0f} MB |"
        )
    return "\n".join(lines)


def save(name: str, content: Any, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    path.write_text(json.dumps({"date": stamp, "machine": machine(), name: content}, indent=2))
    return path


def plot_capping(results: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [result for result in results if result["events_per_s"]]
    figure, axes = pyplot.subplots(figsize=(9, 0.6 * len(shown) + 1.2))
    names = [result["name"] for result in shown]
    speeds = [result["events_per_s"] for result in shown]
    low = [s - min(r["runs"]) for s, r in zip(speeds, shown, strict=True)]
    high = [max(r["runs"]) - s for s, r in zip(speeds, shown, strict=True)]
    colours = ["#2a6f97" if "Millpond" in name else "#b0b0b0" for name in names]
    axes.barh(names, speeds, xerr=[low, high], color=colours, capsize=3)
    for position, speed in enumerate(speeds):
        axes.text(speed, position, f" {speed:,.0f}", va="bottom", fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("events per second, median; bars from the smallest to the largest run")
    axes.set_title("Frequency capping: map state and an event-time timer per view, 2 cores")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
