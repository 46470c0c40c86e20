"""Where queryable state is answered: what clients get from the dispatcher, or read in a job folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from millpond.core.journal import newest_epoch
from millpond.core.key_groups import key_group_of, subtask_of
from millpond.core.storage import FileStorage
from millpond.errors import QueryableStateError, RetryLaterError, UnknownStateError
from millpond.queryable import files


def states(job_folder: Path) -> dict[str, dict[str, Any]]:
    """Return the queryable states that are known, by name, each with "operator", "uid", "state", "kind",
    "key-type", ..."""
    generation, _ = files.run_of(job_folder)
    _, known = files.read_states(job_folder)
    for location in files.read_locations(job_folder, generation):
        known = {**known, **location.states}
    return known


def describe(job_folder: Path, name: str, lost: Iterable[int] = ()) -> dict[str, Any]:
    """Return all that is needed to look up a state, as JSON:

        {"name", "generation": number of the run, "partitions", "max-parallelism", "state": as in `states`,
         "addresses": {"0": {"host", "port", "token"}, ...}, "missing": [partitions that have none]}

    `lost` has the partitions whose server the caller could not reach. If there are any, or slots that are
    known to be gone, the job is asked for a batch, with which new slots load their state. Raises
    UnknownStateError, RetryLaterError, or QueryableStateError if the job does not run.
    """
    generation, is_running = files.run_of(job_folder)
    if generation == 0:
        raise RetryLaterError("The job has not started yet. Try again.")
    if not is_running:
        raise QueryableStateError(
            "The job is not running; state can be looked up only while it runs."
        )
    locations = files.read_locations(job_folder, generation)
    state = _state(job_folder, name, generation, locations)
    alive = {location.partition: location for location in locations if not location.is_dead()}
    partitions = locations[0].partitions if locations else 0
    missing = [number for number in range(partitions) if number not in alive]
    if missing or not locations or any(number in alive for number in lost):
        files.want_batch(job_folder)
    if not locations:
        raise RetryLaterError(
            "The job has started, but its slots have not loaded their state yet. Try again."
        )
    return {
        "name": name,
        "generation": generation,
        "partitions": partitions,
        "max-parallelism": state["max-parallelism"],
        "state": state,
        "addresses": {
            str(number): {"host": location.host, "port": location.port, "token": location.token}
            for number, location in sorted(alive.items())
        },
        "missing": missing,
    }


def _state(
    job_folder: Path, name: str, generation: int, locations: list[files.Location]
) -> dict[str, Any]:
    for location in locations:
        if name in location.states:
            return location.states[name]
    learned_in, known = files.read_states(job_folder)
    if name in known:
        return known[name]  # the function will be opened again
    has_run = newest_epoch(FileStorage(job_folder)) >= 0
    if learned_in == generation or (has_run and not files.has_queryable_state(job_folder)):
        there = ", ".join(sorted(known)) or "none"
        raise UnknownStateError(f"The job has no queryable state '{name}'; there are: {there}.")
    raise RetryLaterError(
        f"The job has not run a batch yet; it is not known whether it has a queryable state '{name}'. "
        "Try again."
    )


def partition_of(location: dict[str, Any], key: object) -> int:
    """Return the partition whose slot has a key: that of the subtask that works on its key group."""
    maximum: int = location["max-parallelism"]
    subtask = subtask_of(key_group_of(key, maximum), location["state"]["parallelism"], maximum)
    partitions: int = location["partitions"]
    return subtask % partitions
