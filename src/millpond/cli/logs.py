"""`millpond logs`: shows what a job prints, and follows it."""

from __future__ import annotations

import argparse
import codecs
import json
import sys
import time
from collections.abc import Mapping

from millpond.cli.client.connection import add_connection_options, connect
from millpond.cli.client.known_jobs import JOB_HELP, find_known_job, job_status
from millpond.cli.client.rest import RestClient
from millpond.cli.commands import Commands

_POLL_S = 0.5
_FIRST_BYTES = 1 << 20  # searched for the last lines when following begins


class LogFollower:
    """Reads a job's log piece by piece: each call returns what has been added since the one before."""

    def __init__(self, client: RestClient, jid: str) -> None:
        self._client = client
        self._path = f"/jobs/{jid}/log"
        self._offset: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def last_lines(self, count: int) -> str:
        """Return the last lines of the log, up to 1 MiB; `new_text` continues after them."""
        status, content, headers = self._client.get_bytes(self._path, byte_range=f"-{_FIRST_BYTES}")
        if status == 206:
            self._offset = _size(headers)
        else:
            content = b"" if status == 416 else content
            self._offset = len(content)
        lines = content.splitlines(keepends=True)
        return self._decoder.decode(b"".join(lines[-count:] if count > 0 else []))

    def new_text(self) -> str:
        """Return what has been added since the last call; the whole log if this is the first one."""
        offset = self._offset or 0
        status, content, headers = self._client.get_bytes(self._path, byte_range=f"{offset}-")
        if status == 416:
            if _size(headers) < offset:
                self._offset = 0  # the dispatcher has begun a new log because this one was too long
            return ""
        if status == 200:  # the whole log: the dispatcher does not support ranges
            content = content[offset:]
        self._offset = offset + len(content)
        return self._decoder.decode(content)


def _size(headers: Mapping[str, str]) -> int:
    """Return the size of the whole log in bytes; 0 if the headers do not tell."""
    text = headers.get("content-range", "").rpartition("/")[2]
    return int(text) if text.isdecimal() else 0


def add_commands(commands: Commands) -> None:
    """Add `logs`."""
    logs = commands.add_parser(
        "logs",
        help="show what a job prints",
        description="Show the last lines that a job's driver has printed.",
    )
    logs.add_argument("job", metavar="JOB", help=JOB_HELP)
    logs.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="keep printing new lines until the job ends or you press Ctrl-C",
    )
    logs.add_argument(
        "-n",
        "--lines",
        type=int,
        default=100,
        metavar="N",
        help="number of lines to show (default: 100)",
    )
    logs.add_argument("--json", action="store_true", help="print JSON; ignored with -f")
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
        # If it has ended, read once more: it may have printed something in between.
        ended = job_status(client, jid).is_globally_terminal_state()
        if not ended:
            time.sleep(_POLL_S)
