"""The same programs on a standalone cluster of a master and two workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.catalogue import PROGRAMS
from tests.programs.test_direct import in_any_order
from tests.spark.standalone import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.soak]


EVERY = (
    3  # all of them run on one machine (test_programs.py); here it is the cluster that is tested
)


def test_programs_give_their_results_on_a_cluster(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster") as master:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.spark.run_programs"),
                *(master, str(tmp_path / "jobs"), str(EVERY)),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) >= len(PROGRAMS) // EVERY
    for name, found in results.items():
        assert found == in_any_order(PROGRAMS[name][1]), name
