"""Random faults for minutes or hours.

python -m tests.faults.soak [MINUTES] [FIRST_SEED]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.job_run import JobRun, delivered, in_order_of_keys, run_to_the_end
from tests.faults.test_fault_points import plan_faults


def main(minutes: float = 15.0, first_seed: int = 0) -> None:
    base = Path(tempfile.mkdtemp(prefix="millpond-soak-"))
    run = JobRun(base / "undisturbed")
    assert run.finish() == 0, run.output
    expected = delivered(base / "undisturbed"), in_order_of_keys(base / "undisturbed")
    deadline = time.monotonic() + minutes * 60
    seed, killed = first_seed, 0
    while time.monotonic() < deadline:
        slots = "off" if seed % 4 == 3 else "on"
        folder = base / f"seed-{seed}"
        planned = plan_faults(folder, seed, slots)
        drivers = run_to_the_end(folder, configuration={"millpond.slots": slots})
        found = delivered(folder), in_order_of_keys(folder)
        if found != expected:
            raise SystemExit(f"seed {seed}, slots {slots}: wrong result in {folder}: {planned}")
        killed += drivers
        left = max(0.0, deadline - time.monotonic()) / 60
        print(
            f"seed {seed}, slots {slots}: right, after {planned}; {left:.0f} min left", flush=True
        )
        shutil.rmtree(folder)
        seed += 1
    shutil.rmtree(base)
    print(f"{seed - first_seed} runs, {killed} drivers killed, every result right.")


if __name__ == "__main__":
    numbers = [float(argument) for argument in sys.argv[1:]]
    main(*numbers[:1], *(int(number) for number in numbers[1:2]))
