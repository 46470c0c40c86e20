"""Seconds without results after kill -9: of a slot, a Spark worker, an executor, the JVM, or the driver.

A job builds up state (GB are GB of the change log), then touches entries of it at a fixed rate; its results
are committed with each batch. Once it runs steadily, a process is killed. What counts is the time until a
batch that had not counted before is committed. The driver is started again as soon as it has ended. All kinds
of processes are killed in turn, in the same job, so that state is built up once per size and backend; that
time is left out. Executors are processes of their own only on a cluster: for them there is a job on a
standalone cluster with two workers. Driver means the driver with its JVM.

The parts of the time are what passes from one visible step to the next:

    noticed      until the process that was killed is started again, or its successor
    imports      until the program has imported everything
    JVM          until Spark is there
    slots        until all slots that were started again run
    opened       until they have the plan and open the function in their first batch
    batch        until results are committed; loading the state is in here
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.slot.processes import slots_of
from tests.spark.standalone import standalone_cluster

from bench.measure import BenchmarkFailed
from bench.recovery.marks import Marks
from bench.recovery.millpond_job import NAME
from bench.recovery.processes import KINDS, of_kind, started_at_s
from bench.state.millpond_job import entry_bytes
from millpond.core.journal import newest_epoch
from millpond.core.storage import FileStorage

SIZES_GB = (0.1, 1.0)
BACKENDS = ("hashmap", "rocksdb")
GOAL_S = 10.0
PARTS = ("noticed", "imports", "JVM", "slots", "opened", "batch")
_PER_S = 1_000
_WORKERS = 2
_LOGGED_PER_ENTRY = 1.0  # bytes of the change log per byte of an entry
_LOOK_EVERY_S = 0.01
_STEADY_COMMITS = 15
_STEADY_LAG_S = 1.0
_BUILD_TIMEOUT_S = 900.0
_RECOVERY_TIMEOUT_S = 300.0


def measure(
    sizes_gb: list[float], only: str | None, repeat: int, quick: bool
) -> list[dict[str, Any]]:
    """`only`: comma-separated backends, or kinds of processes. `quick`: the smaller size, each kind once."""
    wanted = set((only or "").split(",")) - {""}
    unknown = wanted - set(BACKENDS) - set(KINDS)
    if unknown:
        raise SystemExit(f"--only: there is no {', '.join(sorted(unknown))} here")
    kinds = [kind for kind in KINDS if kind in wanted] or list(KINDS)
    backends = [backend for backend in BACKENDS if backend in wanted] or list(BACKENDS)
    results: list[dict[str, Any]] = []
    local = [kind for kind in kinds if kind != "executor"]
    for state_gb in sizes_gb[:1] if quick else sizes_gb:
        for backend in backends:
            for own_kinds in filter(None, (local, [kind for kind in kinds if kind not in local])):
                try:
                    results += _measure_job(state_gb, backend, own_kinds, 1 if quick else repeat)
                except BenchmarkFailed as failure:
                    _say(str(failure))
                    results.append(
                        {"state_gb": state_gb, "backend": backend, "failed": str(failure)}
                    )
    return results


def _measure_job(
    state_gb: float, backend: str, kinds: list[str], repeat: int
) -> list[dict[str, Any]]:
    folder = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        master = "local[2]"
        if kinds == ["executor"]:
            master = ends.enter_context(
                standalone_cluster(folder / "cluster", _WORKERS, apart=True)
            )
        job = _Job(folder, state_gb, backend, master)
        ends.callback(job.end)
        _say(f"{state_gb:g} GB, {backend}: building up state ...")
        job.await_steady(0.0, _BUILD_TIMEOUT_S)
        _say(f"{job.state_bytes() / 1e9:.2f} GB after {time.time() - job.began_s:.0f} s")
        results = []
        for kind in kinds:
            runs = []
            for _ in range(repeat):
                runs.append(job.kill(kind))
                _say(f"{kind}: {runs[-1]}")
            results.append(
                {
                    "state_gb": state_gb,
                    "backend": backend,
                    "kind": kind,
                    "state_bytes": job.state_bytes(),
                    "runs": runs,
                }
            )
        return results


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Job:
    """The job, and a thread that starts its driver again whenever that has ended, as a supervisor would."""

    def __init__(self, folder: Path, state_gb: float, backend: str, master: str) -> None:
        self._folder = folder
        self._marks = Marks(str(folder / "marks"))
        self._output = folder / "output"
        self._journal = FileStorage(folder / "state" / NAME)
        is_local = master.startswith("local")
        settings = {
            "entries": int(state_gb * 1e9 / entry_bytes() / _LOGGED_PER_ENTRY),
            "per_s": _PER_S,
            "marks": self._marks.path,
            "modules": [] if is_local else [str(_modules(folder))],
            "configuration": {
                "millpond.master": master,
                "spark.executor.memory": "512m",
                "parallelism.default": 2,
                "state.backend.type": backend,
                "restart-strategy.type": "exponential-delay",
                "execution.checkpointing.dir": str(folder / "state"),
            },
        }
        self._command = [sys.executable, "-m", "bench.recovery.millpond_job", json.dumps(settings)]
        self.began_s = time.time()
        self._is_over = False
        self._lock = threading.Lock()
        self._started_s: list[float] = []
        self._start()
        self._keeper = threading.Thread(target=self._keep_alive, daemon=True)
        self._keeper.start()

    def _start(self) -> None:
        self._started_s.append(time.time())
        with open(self._output, "ab") as output:
            self._driver = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=Path(__file__).parent.parent.parent,
                start_new_session=True,
            )

    def _keep_alive(self) -> None:
        while True:
            code = self._driver.wait()
            with self._lock:
                if self._is_over or code != -signal.SIGKILL:
                    return
                self._start()

    def state_bytes(self) -> int:
        """Return the size of the change logs."""
        return int(self._marks.all("size")[-1]["bytes"])

    def await_steady(self, since_s: float, timeout_s: float) -> None:
        """Wait until the job has committed some batches since then and is not behind."""

        def steady() -> bool:
            newest = self._marks.all("commit", since_s)[-_STEADY_COMMITS:]
            return len(newest) == _STEADY_COMMITS and all(
                commit["at_s"] - commit["newest_s"] < _STEADY_LAG_S for commit in newest
            )

        self._await(steady, timeout_s, "results do not come steadily")

    def kill(self, kind: str) -> dict[str, Any]:
        """Kill a process; return how long there were no results, and the parts of that time. The job runs
        steadily again after that."""
        if kind == "executor":
            self._await_spread()
        victim = of_kind(kind, self._driver.pid, self._folder)[0]
        slots = set(slots_of(self._folder))
        os.kill(victim, signal.SIGKILL)
        killed_s = time.time()
        counted = newest_epoch(self._journal)

        def recovered() -> dict[str, Any] | None:
            commits = self._marks.all("commit", killed_s)
            return next((commit for commit in commits if commit["epoch"] > counted), None)

        found = self._await(recovered, _RECOVERY_TIMEOUT_S, "there are no results")
        new_slots = set(slots_of(self._folder)) - slots
        steps = self._steps(killed_s, new_slots)
        self.await_steady(found["at_s"], _RECOVERY_TIMEOUT_S)
        return {
            "seconds": found["at_s"] - killed_s,
            "caught_up_s": self._caught_up_s(killed_s) - killed_s,
            "parts": _parts(killed_s, steps, found["at_s"]),
        }

    def _await_spread(self) -> None:
        """Wait until both workers have state again, after one was killed."""

        def spread() -> bool:
            return len(set(of_kind("executor", self._driver.pid, self._folder))) == _WORKERS

        self._await(spread, _RECOVERY_TIMEOUT_S, "partitions do not move to the new executor")
        self.await_steady(time.time(), _RECOVERY_TIMEOUT_S)

    def _steps(self, killed_s: float, new_slots: set[int]) -> dict[str, float]:
        """Return when the steps of the recovery were done that have taken place."""
        jvms = of_kind("JVM", self._driver.pid, self._folder)
        started = {
            "driver": [at_s for at_s in self._started_s if at_s >= killed_s],
            "JVM": [at_s for at_s in map(started_at_s, jvms) if at_s and at_s >= killed_s],
            "slots": [at_s for at_s in map(started_at_s, new_slots) if at_s],
        }
        marked = {
            what: [mark["at_s"] for mark in self._marks.all(what, killed_s)]
            for what in ("imported", "session", "opened")
        }
        first = next((times[0] for times in started.values() if times), None)
        found = {
            "noticed": [first] if first else [],
            "imports": marked["imported"],
            "JVM": marked["session"],
            "slots": started["slots"],
            "opened": marked["opened"],
        }
        return {step: max(times) for step, times in found.items() if times}

    def _caught_up_s(self, killed_s: float) -> float:
        """Return when the job was no longer behind."""
        commits = self._marks.all("commit", killed_s)
        return next(
            float(commit["at_s"])
            for commit in commits
            if commit["newest_s"] > killed_s and commit["at_s"] - commit["newest_s"] < _STEADY_LAG_S
        )

    def _await(self, condition: Callable[[], Any], timeout_s: float, complaint: str) -> Any:
        deadline_s = time.monotonic() + timeout_s
        while not (found := condition()):
            if not self._keeper.is_alive() or time.monotonic() > deadline_s:
                tail = self._output.read_text(errors="replace")[-3000:]
                raise BenchmarkFailed(f"{complaint}\n{tail}")
            time.sleep(_LOOK_EVERY_S)
        return found

    def end(self) -> None:
        """End the driver, and wait until its JVM and slots have ended as well."""
        with self._lock:
            self._is_over = True
            jvms = of_kind("JVM", self._driver.pid, self._folder)
            self._driver.kill()
        self._driver.wait()
        # Slots would wait for the job to be started again.
        (self._folder / "state" / NAME / "run").unlink(missing_ok=True)
        deadline_s = time.monotonic() + 60
        while any(map(started_at_s, jvms)) or slots_of(self._folder):
            if time.monotonic() > deadline_s:
                raise BenchmarkFailed("processes of the job did not end with its driver")
            time.sleep(_LOOK_EVERY_S)


def _modules(folder: Path) -> Path:
    """Return a folder with the package of the benchmarks, for machines that do not have it."""
    modules = folder / "modules"
    shutil.copytree(Path(__file__).parent.parent, modules / "bench")
    return modules


def _parts(killed_s: float, steps: dict[str, float], committed_s: float) -> dict[str, float]:
    """Return how long each part took: from the step before it that has taken place."""
    parts, before_s = {}, killed_s
    for part in PARTS:
        at_s = committed_s if part == "batch" else steps.get(part)
        if at_s is not None:
            parts[part] = at_s - before_s
            before_s = at_s
    return parts


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    lines = [
        f"{_PER_S:,} records/s, 2 slots; seconds until the next committed result (goal: {GOAL_S:g}), and the "
        "parts of the median run",
        "",
        "| state | backend | killed | median | smallest to largest | caught up | "
        + " | ".join(PARTS)
        + " |",
        "|---" * (6 + len(PARTS)) + "|",
    ]
    for own in results:
        state = f"| {own['state_gb']:g} GB | {own['backend']} |"
        if "failed" in own:
            lines.append(f"{state} | failed |" + " |" * (2 + len(PARTS)))
            continue
        runs = sorted(own["runs"], key=lambda run: float(run["seconds"]))
        middle = runs[(len(runs) - 1) // 2]
        parts = (middle["parts"].get(part) for part in PARTS)
        lines.append(
            f"{state} {own['kind']} | {statistics.median(run['seconds'] for run in runs):.1f} | "
            f"{runs[0]['seconds']:.1f} to {runs[-1]['seconds']:.1f} | {middle['caught_up_s']:.1f} | "
            + " | ".join("" if seconds is None else f"{seconds:.1f}" for seconds in parts)
            + " |"
        )
    return "\n".join(lines)
