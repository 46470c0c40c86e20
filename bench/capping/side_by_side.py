"""All systems, the same views, in turn, several times; median and spread."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.capping.data import write_views
from bench.capping.systems import SYSTEMS, System, Workshop
from bench.measure import BenchmarkFailed, Spread, run_program

_TIMEOUT_S = 900
_WARM_UP = 0.05


def measure(
    systems: list[System], views: int, users: int, repeat: int, folder: Path
) -> list[dict[str, Any]]:
    """One result per system, in their order."""
    workshop = Workshop(folder)
    speeds = {system.key: Spread() for system in systems}
    peaks = {system.key: Spread() for system in systems}
    failures: dict[str, str] = {}
    answers: dict[str, int] = {}  # of Millpond's jobs
    for number in range(repeat):
        for system in systems:
            if system.key in failures or (system.once and number > 0):
                continue
            print(f"[{number + 1}/{repeat}] {system.name} ...", file=sys.stderr, flush=True)
            count = int(views * system.share)
            own_users = int(users * system.share)
            scratch = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
            try:
                runs = [
                    write_views(folder / "views", int(count * _WARM_UP), int(own_users * _WARM_UP)),
                    write_views(folder / "views", count, own_users),
                ]
                texts = [[str(path) for path in paths] for paths in runs]
                command = system.command(workshop, texts, scratch)
                done = run_program(command, _TIMEOUT_S, checkout=system.checkout)
                speed = count / done.lines[-1]["seconds"]
                speeds[system.key].values.append(speed)
                peaks[system.key].values.append(done.peak_mb)
                if system.key.startswith("millpond"):
                    answers[system.key] = _answers(scratch)
                print(f"      {speed:,.0f} events/s", file=sys.stderr, flush=True)
            except BenchmarkFailed as failure:
                failures[system.key] = str(failure)
                print(f"      failed: {failure}", file=sys.stderr, flush=True)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    # Others cannot be compared: in Flink a timer fires when a periodic watermark arrives, so how often a
    # cap is reached depends on how fast the job runs.
    if len(set(answers.values())) > 1:
        raise SystemExit(f"Millpond's jobs do not agree on the number of results: {answers}")
    results = []
    for system in systems:
        speed = speeds[system.key]
        results.append(
            {
                "key": system.key,
                "name": system.name,
                "views": int(views * system.share),
                "events_per_s": speed.median if speed.values else None,
                "spread": speed.text if speed.values else failures.get(system.key, "")[:60],
                "runs": speed.values,
                "peak_mb": peaks[system.key].median if speed.values else None,
            }
        )
    return results


def _answers(folder: Path) -> int:
    """How many lines the timed run has put out."""
    files = [path for path in (folder / "output-1").rglob("*") if path.is_file()]
    return sum(path.read_bytes().count(b"\n") for path in files)


def chosen(keys: str | None) -> list[System]:
    if not keys:
        return SYSTEMS
    known = {system.key: system for system in SYSTEMS}
    unknown = [key for key in keys.split(",") if key not in known]
    if unknown:
        raise SystemExit(f"no such system: {', '.join(unknown)}. There are: {', '.join(known)}")
    return [known[key] for key in keys.split(",")]
