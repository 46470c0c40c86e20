"""`millpond logs JOB`: what a job prints, and how it is followed."""

from __future__ import annotations

import argparse
import codecs
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from millpond.cli.client.connection import add_connection_options, connect
from millpond.cli.client.known_jobs import ENDED, find_known_job, job_state
from millpond.cli.client.rest import RestClient

_POLL_S = 0.5
_FIRST_BYTES = 1 << 20  # what is looked through for the last lines when following begins


class LogFollower:
    """Reads what has come to a job's log since the last time."""

    def __init__(self, client: RestClient, jid: str) -> None:
        self._client = client
        self._path = f"/jobs/{jid}/log"
        self._offset: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def last_lines(self, count: int) -> str:
        """Begin with the last lines."""
        status, content, headers = self._client.get_bytes(self._path, byte_range=f"-{_FIRST_BYTES}")
        if status == 206:
            self._offset = _size(headers)
        else:
            content = b"" if status == 416 else content
            self._offset = len(content)
        lines = content.splitlines(keepends=True)
        return self._decoder.decode(b"".join(lines[-count:] if count > 0 else []))

    def new_text(self) -> str:
        """Everything, the first time, unless `last_lines` came before."""
        offset = self._offset or 0
        status, content, headers = self._client.get_bytes(self._path, byte_range=f"{offset}-")
        if status == 416:
            if _size(headers) < offset:
                self._offset = 0  # it had grown too long, and began anew
            return ""
        if status == 200:  # all of it, because the dispatcher cannot send parts
            content = content[offset:]
        self._offset = offset + len(content)
        return self._decoder.decode(content)


def _size(headers: Mapping[str, str]) -> int:
    """Of the whole log."""
    text = headers.get("content-range", "").rpartition("/")[2]
    return int(text) if text.isdecimal() else 0


def add_commands(commands: Any) -> None:
    logs = commands.add_parser(
        "logs", help="show what a job prints", description="The last lines that a job has printed."
    )
    logs.add_argument("job", metavar="JOB", help="the job's id, the beginning of it, or its name")
    logs.add_argument(
        "-f", "--follow", action="store_true", help="go on until the job ends, or Ctrl-C"
    )
    logs.add_argument(
        "-n", "--lines", type=int, default=100, metavar="N", help="how many lines (100)"
    )
    logs.add_argument("--json", action="store_true", help="print JSON; not with -f")
    add_connection_options(logs)
    logs.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    with connect(parsed) as client:
        job = find_known_job(client, parsed.job)
        if parsed.follow:
            return _follow(client, job["jid"], parsed.lines)
        _, content, _ = client.get_bytes(f"/jobs/{job['jid']}/log", {"tail": parsed.lines})
    text = content.decode("utf-8", "replace")
    if parsed.json:
        print(json.dumps({"jid": job["jid"], "lines": text.splitlines()}))
    else:
        sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
    return 0


def _follow(client: RestClient, jid: str, lines: int) -> int:
    follower = LogFollower(client, jid)
    sys.stdout.write(follower.last_lines(lines))
    ended = False
    while True:
        sys.stdout.write(follower.new_text())
        sys.stdout.flush()
        if ended:
            return 0
        ended = job_state(client, jid) in ENDED  # then once more: it may have printed in between
        if not ended:
            time.sleep(_POLL_S)
