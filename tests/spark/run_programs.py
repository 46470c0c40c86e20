"""Runs programs of the catalogue on a given master and prints their results as JSON.

python -m tests.spark.run_programs MASTER CHECKPOINT_DIR [EVERY_NTH]
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from pathlib import Path

from millpond.common import Configuration
from millpond.datastream import StreamExecutionEnvironment
from tests.programs.catalogue import PROGRAMS
from tests.programs.test_direct import in_any_order


def main(master: str, checkpoints: str, every: str = "1") -> None:
    results = {}
    package = Path(checkpoints) / "modules"
    shutil.copytree(Path(__file__).parent.parent, package / "tests")
    ways = itertools.cycle([(1, 1000), (4, 3)])  # parallelism, records per batch
    chosen = itertools.islice(PROGRAMS.items(), 0, None, int(every))
    for (name, (build, _)), (parallelism, records) in zip(chosen, ways, strict=False):
        environment = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict(
                {
                    "millpond.master": master,
                    "parallelism.default": parallelism,
                    "millpond.batch.max-records": records,
                    "execution.checkpointing.dir": checkpoints,
                    "spark.executor.memory": "512m",
                }
            )
        )
        environment.add_python_file(str(package))
        values = list(build(environment).execute_and_collect(name))
        results[name] = in_any_order(values)
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
