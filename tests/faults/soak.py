"""Random faults for minutes or hours. Every third run is frequency capping, from Kafka to Redis.

python -m tests.faults.soak [MINUTES] [FIRST_SEED]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.capping.test_faults import run_with_faults
from tests.faults.job_run import JobRun, delivered, in_order_of_keys, run_to_the_end
from tests.faults.test_fault_points import plan_faults
from tests.servers import RedisServer


def main(minutes: float = 15.0, first_seed: int = 0) -> None:
    base = Path(tempfile.mkdtemp(prefix="millpond-soak-"))
    run = JobRun(base / "undisturbed")
    assert run.finish() == 0, run.output
    expected = delivered(base / "undisturbed"), in_order_of_keys(base / "undisturbed")
    deadline = time.monotonic() + minutes * 60
    seed, killed = first_seed, 0
    while time.monotonic() < deadline:
        if seed % 3 == 2:
            run_capping(base / f"seed-{seed}", seed, on_cluster=seed % 2 == 1)
            seed += 1
            continue
        folder = base / f"seed-{seed}"
        planned = plan_faults(folder, seed)
        drivers = run_to_the_end(folder)
        found = delivered(folder), in_order_of_keys(folder)
        if found != expected:
            raise SystemExit(f"seed {seed}: wrong result in {folder}: {planned}")
        killed += drivers
        left = max(0.0, deadline - time.monotonic()) / 60
        print(f"seed {seed}: right, after {planned}; {left:.0f} min left", flush=True)
        shutil.rmtree(folder)
        seed += 1
    shutil.rmtree(base)
    print(f"{seed - first_seed} runs, {killed} drivers killed, every result right.")


def run_capping(folder: Path, seed: int, on_cluster: bool) -> None:
    """Raises AssertionError, with the seed, if Redis is not as it should be."""
    (folder / "redis").mkdir(parents=True)
    server = RedisServer(folder / "redis")
    server.start()
    try:
        run_with_faults(folder, server, seed, on_cluster)
    except BaseException:
        print(f"seed {seed}, frequency capping: failed in {folder}", flush=True)
        raise
    finally:
        server.stop()
    print(
        f"seed {seed}, frequency capping{' on a cluster' if on_cluster else ''}: right", flush=True
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    numbers = [float(argument) for argument in sys.argv[1:]]
    main(*numbers[:1], *(int(number) for number in numbers[1:2]))
