"""Follows a dispatcher's job until it ends: prints its log and shows its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.cli.client.known_jobs import short_cause, status_of
from millpond.cli.client.rest import RestClient
from millpond.cli.logs import LogFollower
from millpond.cli.progress import Progress
from millpond.cli.texts import duration_text
from millpond.errors import DispatcherError, DispatcherUnreachableError

if TYPE_CHECKING:
    from millpond.common.job import JobStatus
    from millpond.dispatcher.messages import Json

_POLL_S = 0.5
_PATIENCE_S = 60.0  # time for a standby dispatcher to take over


def follow(
    client: RestClient,
    jid: str,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> JobStatus:
    """Print the job's log to standard output until the job ends, and return the status it ends in.

    A dispatcher may be silent for up to a minute, because the job does not need it; after that,
    DispatcherUnreachableError or DispatcherError is raised."""
    log = LogFollower(client, jid)
    silent_since_s: float | None = None
    with Progress() as progress:
        while True:
            try:
                job = client.get(f"/jobs/{jid}")
                text = _new_text(log)
                line = _line(client, job) if progress.visible else ""
                silent_since_s = None
            except DispatcherError as problem:
                if not isinstance(problem, DispatcherUnreachableError) and problem.status != 503:
                    raise
                silent_since_s = now_s() if silent_since_s is None else silent_since_s
                waited_s = now_s() - silent_since_s
                if waited_s > _PATIENCE_S:
                    raise
                progress.show(
                    f"waiting for a dispatcher; the job keeps running ... {waited_s:.0f} s"
                )
                sleep(_POLL_S)
                continue
            if text:
                progress.clear()
                sys.stdout.write(text)
                sys.stdout.flush()
            status = status_of(job)
            if status.is_globally_terminal_state():
                return status
            progress.show(line)
            sleep(_POLL_S)


def root_cause(client: RestClient, jid: str) -> str:
    """Return why a job failed, or a text that says that the reason is unknown."""
    answer = client.get(f"/jobs/{jid}/exceptions")
    entries = (answer.get("exceptionHistory") or {}).get("entries") or []
    text = answer.get("root-exception") or (entries[0].get("stacktrace") if entries else None)
    return short_cause(str(text)) if text else "the reason is unknown; see the job's log"


def _new_text(log: LogFollower) -> str:
    try:
        return log.new_text()
    except DispatcherError as problem:
        if problem.status == 404:  # the job has not printed anything yet
            return ""
        raise


def _line(client: RestClient, job: Json) -> str:
    text = f"{job['state']} for {duration_text(job['duration'])}"
    try:
        report = client.get(f"/jobs/{job['jid']}/report")
    except DispatcherError:
        return text  # the job has not written a report yet
    flow = report.get("flow") or {}
    if flow.get("records-per-second") is not None:
        text += f", {flow['records-per-second']:,.0f} records/s"
    if flow.get("backlog-records"):
        text += f", {flow['backlog-records']:,} waiting"
    if report.get("restarts"):
        text += f", {report['restarts']} restarts"
    return text
