"""Runs a program, with the memory of all its processes together watched, wherever they came from."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MARK = "MILLPOND_BENCH"
_SAMPLE_EVERY_S = 0.5


@dataclass
class Measurement:
    """Lines of JSON the program printed, and the most memory its processes had together."""

    lines: list[dict[str, Any]]
    peak_mb: float


@dataclass
class Spread:
    """Several measurements of the same thing."""

    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def text(self) -> str:
        return f"{min(self.values):,.0f} to {max(self.values):,.0f}"


class BenchmarkFailed(Exception):
    """A program under measurement failed; the text is the end of its output."""


def run_program(
    command: list[str],
    timeout_s: float,
    only: bytes = b"",
    checkout: Path | None = None,
    **environment: str,
) -> Measurement:
    """`only`: watch the memory of those processes whose command line has this. `checkout`: run Millpond and
    the benchmark's programs as they are in this folder."""
    mark = uuid.uuid4().hex
    if checkout is not None:
        paths = [str(checkout / "src"), str(checkout), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment, _MARK: mark},
        cwd=checkout or Path(__file__).parent.parent,
    )
    peak = _Peak(mark, only)
    peak.start()
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        raise BenchmarkFailed(f"not done after {timeout_s:g} s\n{errors[-2000:]}") from None
    finally:
        peak.stop()
    if process.returncode != 0:
        raise BenchmarkFailed(f"exit code {process.returncode}\n{errors[-3000:]}")
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return Measurement(lines, peak.mb)


class _Peak(threading.Thread):
    """Every process that inherited the mark counts, with its share of what it shares (PSS)."""

    def __init__(self, mark: str, only: bytes) -> None:
        super().__init__(daemon=True)
        self._only = only
        self._needle = f"{_MARK}={mark}".encode()
        self._done = threading.Event()
        self.mb = 0.0

    def run(self) -> None:
        while not self._done.wait(_SAMPLE_EVERY_S):
            self.mb = max(self.mb, sum(map(self._share_mb, os.listdir("/proc"))))

    def _share_mb(self, entry: str) -> float:
        if not entry.isdigit():
            return 0.0
        try:
            if self._needle not in Path(f"/proc/{entry}/environ").read_bytes():
                return 0.0
            if self._only not in Path(f"/proc/{entry}/cmdline").read_bytes():
                return 0.0
            for line in Path(f"/proc/{entry}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    return int(line.split()[1]) / 1024
        except OSError:
            pass  # it has just ended
        return 0.0

    def stop(self) -> None:
        self._done.set()
        self.join()
