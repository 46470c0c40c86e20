"""The capping job on one core and on two."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from bench.capping.data import write_views
from bench.capping.systems import Workshop, millpond
from bench.measure import run_program


def measure(views: int, users: int, folder: Path) -> dict[str, float]:
    workshop = Workshop(folder / "workshop")
    speeds: dict[str, float] = {}
    for cores in (1, 2):
        scratch = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
        runs = [
            write_views(folder / "workshop" / "views", v, u)
            for v, u in ((views // 20, users // 20), (views, users))
        ]
        settings = {"millpond.master": f"local[{cores}]", "parallelism.default": cores}
        command = millpond(**settings)(workshop, [[str(p) for p in r] for r in runs], scratch)
        # Slots, workers and the JVM may not use more cores than Spark has.
        cpus = ",".join(str(cpu) for cpu in range(cores))
        done = run_program(["taskset", "-c", cpus, *command], 900)
        shutil.rmtree(scratch, ignore_errors=True)
        speeds[str(cores)] = views / done.lines[-1]["seconds"]
        print(f"{cores} core(s): {speeds[str(cores)]:,.0f} events/s")
    print(f"two cores are {speeds['2'] / speeds['1']:.2f} times as fast as one")
    return speeds
