"""Finds jobs that a dispatcher knows, by id, the beginning of an id, or name."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from millpond.cli.client.rest import RestClient
from millpond.cli.progress import Progress
from millpond.errors import DispatcherError, UnknownJobError

ENDED = ("FINISHED", "CANCELED", "FAILED")
_POLL_S = 0.2
_MIN_ID = 4  # digits of an id that are taken for one


def known_jobs(client: RestClient) -> list[dict[str, Any]]:
    """As /jobs/overview has them, newest first."""
    jobs: list[dict[str, Any]] = client.get("/jobs/overview")["jobs"]
    return sorted(jobs, key=lambda job: (-int(job.get("start-time", 0)), str(job["jid"])))


def has_ended(job: dict[str, Any]) -> bool:
    return job["state"] in ENDED


def find_known_job(client: RestClient, given: str) -> dict[str, Any]:
    """The job that is meant: by its id, or by its name. Of several with one name, the one that has not ended;
    if all have, the newest."""
    jobs = known_jobs(client)
    digits = given.lower()
    if re.fullmatch(rf"[0-9a-f]{{{_MIN_ID},32}}", digits):
        found = [job for job in jobs if job["jid"].startswith(digits)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownJobError(f"The ids of several jobs begin with {given}: {_ids(found)}.")
    named = [job for job in jobs if job["name"] == given]
    living = [job for job in named if not has_ended(job)]
    if len(living) > 1:
        raise UnknownJobError(
            f"Several jobs that run are named '{given}'; give an id: {_ids(living)}."
        )
    if not named:
        raise UnknownJobError(
            f"The dispatcher has no job '{given}'. `millpond list -a` shows what it has."
        )
    return (living or named)[0]


def find_living_job(client: RestClient, given: str) -> dict[str, Any]:
    job = find_known_job(client, given)
    if has_ended(job):
        raise DispatcherError(f"The job {job['name']} ({job['jid']}) has ended: {job['state']}.")
    return job


def job_state(client: RestClient, jid: str) -> str:
    return str(client.get(f"/jobs/{jid}")["state"])


def wait_for_end(
    client: RestClient,
    jid: str,
    timeout_s: float,
    progress: Progress,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The state the job ended in."""
    began_s = now_s()
    while (state := job_state(client, jid)) not in ENDED:
        waited_s = now_s() - began_s
        if waited_s > timeout_s:
            raise DispatcherError(
                f"The job {jid} is still {state} after {timeout_s:.0f} s; it goes on with ending."
            )
        progress.show(f"{state} ... {waited_s:.0f} s")
        sleep(_POLL_S)
    return state


def wait_for_operation(
    client: RestClient,
    path: str,
    what: str,
    timeout_s: float,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """The result of what a request has set off. Raises with the dispatcher's words if it failed."""
    began_s = now_s()
    with Progress() as progress:
        while (answer := client.get(path))["status"]["id"] != "COMPLETED":
            waited_s = now_s() - began_s
            if waited_s > timeout_s:
                raise DispatcherError(
                    f"No {what} within {timeout_s:.0f} s. It may still come; look with `millpond checkpoint`."
                )
            progress.show(f"waiting for the {what} ... {waited_s:.0f} s")
            sleep(_POLL_S)
    operation: dict[str, Any] = answer.get("operation") or {}
    cause = operation.get("failure-cause")
    if cause:
        text = str(cause.get("stack-trace") or cause.get("class") or "no reason given").strip()
        raise DispatcherError(f"The {what} failed: {short_cause(text)}")
    return operation


def short_cause(text: str, lines: int = 12) -> str:
    """The beginning of what went wrong, without the inside of Millpond or Spark behind it."""
    kept = [line for line in text.strip().splitlines() if not line.lstrip().startswith("at ")]
    return "\n".join(kept[:lines] + (["  ..."] if len(kept) > lines else []))


def _ids(jobs: list[dict[str, Any]]) -> str:
    return ", ".join(f"{job['jid']} ({job['name']}, {job['state']})" for job in jobs)
