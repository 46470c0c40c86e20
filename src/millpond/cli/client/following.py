"""Stays with a job that a dispatcher runs until it ends: prints what it prints, shows how it goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from millpond.cli.client.known_jobs import ENDED, short_cause
from millpond.cli.client.rest import RestClient
from millpond.cli.logs import LogFollower
from millpond.cli.progress import Progress
from millpond.cli.texts import duration_text
from millpond.errors import DispatcherError, DispatcherUnreachableError

_POLL_S = 0.5
_PATIENCE_S = 60.0  # while another dispatcher takes over


def follow(
    client: RestClient,
    jid: str,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The state that the job ends in. Its log goes to standard output. A dispatcher that does not answer
    for a while is waited for: the job does not need it."""
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
                progress.show(f"no dispatcher answers; the job goes on ... {waited_s:.0f} s")
                sleep(_POLL_S)
                continue
            if text:
                progress.clear()
                sys.stdout.write(text)
                sys.stdout.flush()
            if job["state"] in ENDED:
                return str(job["state"])
            progress.show(line)
            sleep(_POLL_S)


def root_cause(client: RestClient, jid: str) -> str:
    """Why a job failed, as far as it is known."""
    answer = client.get(f"/jobs/{jid}/exceptions")
    entries = (answer.get("exceptionHistory") or {}).get("entries") or []
    text = answer.get("root-exception") or (entries[0].get("stacktrace") if entries else None)
    return short_cause(str(text)) if text else "no reason is known; look at its log"


def _new_text(log: LogFollower) -> str:
    try:
        return log.new_text()
    except DispatcherError as problem:
        if problem.status == 404:  # nothing has been printed yet
            return ""
        raise


def _line(client: RestClient, job: dict[str, Any]) -> str:
    text = f"{job['state']} for {duration_text(job['duration'])}"
    try:
        report = client.get(f"/jobs/{job['jid']}/report")
    except DispatcherError:
        return text  # it has not reported yet
    flow = report.get("flow") or {}
    if flow.get("records-per-second") is not None:
        text += f", {flow['records-per-second']:,.0f} records/s"
    if flow.get("backlog-records"):
        text += f", {flow['backlog-records']:,} waiting"
    if report.get("restarts"):
        text += f", {report['restarts']} restarts"
    return text
