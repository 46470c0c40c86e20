"""How long a six-word count takes from nothing, and a second one in the same process.

.venv/bin/python bench/start_up.py [--runs 3] [--without-archive]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

from millpond.executors.spark.session import JAVA_OPTIONS

PROGRAM = """
import json, sys, time
started = time.time()
from millpond.common import Configuration
from millpond.datastream import StreamExecutionEnvironment

times = []
for _ in range(2):
    env = StreamExecutionEnvironment(Configuration.from_dict(json.loads(sys.argv[1])))
    words = env.from_collection("to be or not to be".split()).map(lambda word: (word, 1))
    assert len(list(words.key_by(lambda pair: pair[0]).sum(1).execute_and_collect())) == 6
    times.append(time.time() - started)
    started = time.time()
print(json.dumps(times))
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--without-archive", action="store_true", help="as before `prepare`")
    options = parser.parse_args(arguments)
    settings = {"spark.driver.extraJavaOptions": JAVA_OPTIONS} if options.without_archive else {}
    runs = []
    for _ in range(options.runs):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(settings)],
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    for name, times in zip(("cold start", "second job"), zip(*runs, strict=True), strict=True):
        all_times = ", ".join(f"{seconds:.1f}" for seconds in times)
        print(f"{name:12s} median {statistics.median(times):.1f} s   ({all_times})")


if __name__ == "__main__":
    main()
