"""Finds a dispatcher's jobs by id, beginning of the id, or name, and waits for what they do."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.cli.client.rest import RestClient
from millpond.cli.progress import Progress
from millpond.errors import DispatcherError, UnknownJobError

if TYPE_CHECKING:
    from millpond.common.job import JobStatus
    from millpond.dispatcher.messages import Json

JOB_HELP = "id (or the beginning of it) or name of the job"
_POLL_S = 0.2
_MIN_ID = 4  # shorter texts are not taken for the beginning of an id


def known_jobs(client: RestClient) -> list[Json]:
    """Return all jobs of the dispatcher as /jobs/overview describes them, newest first."""
    jobs: list[Json] = client.get("/jobs/overview")["jobs"]
    return sorted(jobs, key=lambda job: (-int(job.get("start-time", 0)), str(job["jid"])))


def status_of(job: Json) -> JobStatus:
    """Return the status in the dispatcher's JSON about a job. Raise DispatcherError if there is no such
    status."""
    # Imported here because it takes as long as all the rest of a command.
    from millpond.common.job import JobStatus

    return JobStatus.of(job)


def has_ended(job: Json) -> bool:
    """Return True if a job of `known_jobs` has finished, failed or been cancelled."""
    return status_of(job).is_globally_terminal_state()


def find_known_job(client: RestClient, given: str) -> Json:
    """Return the job that has this id, an id that begins with it, or this name. Of several jobs with the
    name, return the one that has not ended, or if all have, the newest. Raise UnknownJobError if there is
    none, or if it is not clear which one is meant."""
    jobs = known_jobs(client)
    digits = given.lower()
    if re.fullmatch(rf"[0-9a-f]{{{_MIN_ID},32}}", digits):
        with_id = [job for job in jobs if job["jid"].startswith(digits)]
        if len(with_id) == 1:
            return with_id[0]
        if with_id:
            raise UnknownJobError(
                f"The ids of several jobs begin with {given}; give more digits: {_ids(with_id)}."
            )
    named = [job for job in jobs if job["name"] == given]
    living = [job for job in named if not has_ended(job)]
    if len(living) > 1:
        raise UnknownJobError(
            f"Several running jobs are named '{given}'; give an id: {_ids(living)}."
        )
    if not named:
        raise UnknownJobError(
            f"The dispatcher has no job '{given}'. `millpond list -a` lists its jobs."
        )
    return (living or named)[0]


def find_living_job(client: RestClient, given: str) -> Json:
    """Return the job as `find_known_job` does, but raise DispatcherError if it has ended."""
    job = find_known_job(client, given)
    if has_ended(job):
        raise DispatcherError(
            f"The job {job['name']} ({job['jid']}) has already ended: {job['state']}."
        )
    return job


def job_status(client: RestClient, jid: str) -> JobStatus:
    """Ask the dispatcher for the status of a job."""
    return status_of(client.get(f"/jobs/{jid}"))


def wait_for_end(
    client: RestClient,
    jid: str,
    timeout_s: float,
    progress: Progress,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> JobStatus:
    """Wait until the job has ended and return the status it ended in. Raise DispatcherError if that takes
    longer than `timeout_s`; the job then still ends at some time."""
    began_s = now_s()
    while not (status := job_status(client, jid)).is_globally_terminal_state():
        waited_s = now_s() - began_s
        if waited_s > timeout_s:
            raise DispatcherError(
                f"The job {jid} is still {status.name} after {timeout_s:.0f} s. It will end later; "
                "`millpond list` shows whether it has."
            )
        progress.show(f"{status.name} ... {waited_s:.0f} s")
        sleep(_POLL_S)
    return status


def wait_for_operation(
    client: RestClient,
    path: str,
    what: str,
    timeout_s: float,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Json:
    """Wait for an asynchronous operation, whose status is at `path`, and return its result. `what` names it
    in messages. Raise DispatcherError with the dispatcher's reason if it fails, or if it takes longer than
    `timeout_s`."""
    began_s = now_s()
    with Progress() as progress:
        while (answer := client.get(path))["status"]["id"] != "COMPLETED":
            waited_s = now_s() - began_s
            if waited_s > timeout_s:
                raise DispatcherError(
                    f"The {what} was not complete within {timeout_s:.0f} s. It may still complete; "
                    "`millpond checkpoint` lists the savepoints of a job."
                )
            progress.show(f"waiting for the {what} ... {waited_s:.0f} s")
            sleep(_POLL_S)
    operation: Json = answer.get("operation") or {}
    cause = operation.get("failure-cause")
    if cause:
        text = str(cause.get("stack-trace") or cause.get("class") or "no reason given").strip()
        raise DispatcherError(f"The {what} failed: {short_cause(text)}")
    return operation


def short_cause(text: str, lines: int = 12) -> str:
    """Return the beginning of a stack trace, at most `lines` lines, without Java's `at ...` lines."""
    kept = [line for line in text.strip().splitlines() if not line.lstrip().startswith("at ")]
    return "\n".join(kept[:lines] + (["  ..."] if len(kept) > lines else []))


def _ids(jobs: list[Json]) -> str:
    return ", ".join(f"{job['jid']} ({job['name']}, {job['state']})" for job in jobs)
