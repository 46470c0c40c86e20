"""The capping job in Bytewax, recovery on. Run by the interpreter of Bytewax's own environment.

Bytewax has no event-time timers: a view that has aged out is dropped when its user is seen again, so
nobody is released in time. That is less work than the other jobs do.

python bytewax_job.py SETTINGS_JSON    prints a line of JSON per run
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.files import FileSink, FileSource
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulLogic
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

CAP = 3
WINDOW_MS = 5 * 86_400_000
WORKERS = 2


class Cap(StatefulLogic):
    def __init__(self, state):
        self.counts, self.ends = state if state is not None else ({}, {})

    def on_item(self, value):
        ad, seen_at_ms = value
        counts, ends = self.counts, self.ends
        for ends_at_ms in [t for t in ends if t <= seen_at_ms]:
            old = ends.pop(ends_at_ms)
            counts[old] -= 1
            if not counts[old]:
                del counts[old]
        count = counts[ad] = counts.get(ad, 0) + 1
        ends[seen_at_ms + WINDOW_MS] = ad
        return ([f"cap,{ad},{seen_at_ms}"] if count == CAP else []), StatefulLogic.RETAIN

    def snapshot(self):
        return dict(self.counts), dict(self.ends)


def parse(line):
    user, ad, time_ms = line.split(",")
    return user, (ad, int(time_ms))


def run(files, output, state):
    os.makedirs(output)
    os.makedirs(state)
    init_db_dir(Path(state), WORKERS)
    flow = Dataflow("capping")
    streams = [op.input(f"views-{i}", flow, FileSource(path)) for i, path in enumerate(files)]
    views = op.map("parse", op.merge("all", *streams), parse)
    capped = op.stateful("cap", views, Cap)
    op.output("out", capped, FileSink(f"{output}/caps"))
    started = time.monotonic()
    cluster_main(
        flow,
        [],
        0,
        epoch_interval=timedelta(seconds=3),
        recovery_config=RecoveryConfig(state),
        worker_count_per_proc=WORKERS,
    )
    return time.monotonic() - started


settings = json.loads(sys.argv[1])
for number, files in enumerate(settings["runs"]):
    folder = settings["folder"]
    seconds = run(files, f"{folder}/output-{number}", f"{folder}/state-{number}")
    print(json.dumps({"seconds": seconds}), flush=True)
