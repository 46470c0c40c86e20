"""Fault points: spots where a test can kill the process, as `kill -9` does.

The environment variable MILLPOND_FAULTS names a folder; if it is not set, fault points do nothing. A file
`<point>.at` in the folder holds the numbers of the visits to that point, counted over all processes, at which
the visiting process is killed. `<point>.visits` counts the visits.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "MILLPOND_FAULTS"
POINTS = (
    "driver before plan",  # the output of the previous batch is visible
    "driver after plan",  # the plan is in the journal, but nothing has run
    "slot before level",  # a slot has received the records for a level
    "slot before append",  # it has processed them, but not written what has changed
    "slot after append",  # what has changed is in the log, but does not count
    "slot before reply",  # sinks have prepared, too, if this is the last level
    "driver before complete",  # the batch has run, but does not count
    "driver after complete",  # the epoch is in the journal, but its output is not visible
)
SAVEPOINT_POINTS = (
    "slot before part",  # a shard is about to write its part of a savepoint
    "driver before savepoint",  # all parts are there, and the batch is committed
    "driver within savepoint",  # the savepoint is put together, but does not have its name yet
    "driver after savepoint",  # the savepoint is complete, but nobody has been told
)
OUTPUT_POINTS = (
    "driver before output",  # a sink is about to commit; other sinks may have committed
    "driver after output",  # the sink has committed, but this is not recorded yet
)
STORAGE_POINTS = (  # with every batch
    "log before sync",  # a slot has written its record, but not synced it
    "journal before plan",  # the driver is about to write the plan
    "journal after plan",  # it is written, but not even the driver knows
    "journal before epoch",  # everything has run, but the batch does not count
    "journal after epoch",  # it counts, but nobody has been told
    "journal before sync",  # the driver has written its record, but not synced it
)
RARE_POINTS = (  # only with some batches
    "journal after new log",  # nothing is in it yet
    "journal after basis",  # it has what the driver builds upon, but not the record that follows
    "slot after new segment",  # nothing is in it yet
    "slot before moved row",  # a valid row of an old segment is to be written again
    "object before replace",  # an object is written, but does not have its name yet
)
_folder = os.environ.get(VARIABLE)


def reach(point: str) -> None:
    """Visit a fault point. Kills the process if a test wants it to die at this visit."""
    if _folder is None:
        return
    try:
        with open(f"{_folder}/{point}.at", encoding="ascii") as file:
            deadly = [int(number) for number in file.read().split()]
    except FileNotFoundError:
        return
    visits = os.open(f"{_folder}/{point}.visits", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(visits, b".")
    number = os.lseek(visits, 0, os.SEEK_CUR)  # the end of our byte, because appending is atomic
    os.close(visits)
    if number in deadly:
        os.kill(os.getpid(), signal.SIGKILL)
