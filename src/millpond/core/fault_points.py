"""Places where a test can make a process die, as kill -9 does. Without MILLPOND_FAULTS: nothing.

MILLPOND_FAULTS names a folder. A file `<point>.at` in it holds the numbers of the visits to that point,
counted over all processes, at which the visitor is killed; `<point>.visits` counts the visits.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "MILLPOND_FAULTS"
POINTS = (
    "driver before plan",  # Spark has committed the batch before
    "driver after plan",  # the plan is written, nothing has run
    "slot before label",  # a slot (or worker) has the records of a key group
    "slot before reply",  # a slot has processed them
    "relay before write",  # the change is at the Spark worker, not in Spark's state store
    "relay after write",  # it is in the state store, which is not committed yet
    "driver before complete",  # all tasks have committed their state
    "driver after complete",  # the epoch is written, Spark's commit log is not
)
SAVEPOINT_POINTS = (
    "slot before part",  # a key group is about to write its part of a savepoint
    "driver before savepoint",  # all parts are there, and the batch is committed
    "driver within savepoint",  # it is put together and has no name yet
    "driver after savepoint",  # it is there, and nobody has been told
)
OUTPUT_POINTS = (
    "driver before output",  # a sink is about to commit; others may have
    "driver after output",  # it has, and nobody knows
)
_folder = os.environ.get(VARIABLE)


def reach(point: str) -> None:
    if _folder is None:
        return
    try:
        with open(f"{_folder}/{point}.at", encoding="ascii") as file:
            deadly = [int(number) for number in file.read().split()]
    except FileNotFoundError:
        return
    visits = os.open(f"{_folder}/{point}.visits", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(visits, b".")
    number = os.lseek(visits, 0, os.SEEK_CUR)  # where our byte ended: appending is atomic
    os.close(visits)
    if number in deadly:
        os.kill(os.getpid(), signal.SIGKILL)
