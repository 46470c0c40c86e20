"""A dispatcher as a process, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ENDED = ("FINISHED", "FAILED", "CANCELED")
PATIENCE_S = 120.0


class RunningDispatcher:
    """`token`: sent with all requests of `http`; None: with none."""

    def __init__(
        self, process: subprocess.Popen[str], address: str, token: str | None = None
    ) -> None:
        self.process = process
        self.address = address
        self.token = token
        self.http = httpx.Client(
            base_url=address,
            timeout=30,
            follow_redirects=True,
            event_hooks={"request": [self._authorize]},  # also if a standby sends on to the leader
        )

    @property
    def link(self) -> str:
        """What opens the dashboard in a browser."""
        return f"{self.address}/#token={self.token}"

    def _authorize(self, request: httpx.Request) -> None:
        if self.token is not None:
            request.headers.setdefault("Authorization", f"Bearer {self.token}")

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.json()

    def upload(self, program: Path) -> str:
        with open(program, "rb") as file:
            answer = self.http.post("/jars/upload", files={"jarfile": (program.name, file)})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["filename"].rsplit("/", 1)[1])

    def run(self, program: Path, *arguments: str, **settings: str) -> str:
        body = {"programArgsList": list(arguments), "flinkConfiguration": settings}
        answer = self.http.post(f"/jars/{self.upload(program)}/run", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["jobid"])

    def await_state(self, jid: str, *states: str) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            job = self.get(f"/jobs/{jid}")
            if job["state"] in ENDED and job["state"] not in states:
                exceptions = self.get(f"/jobs/{jid}/exceptions")["root-exception"]
                log = self.http.get(f"/jobs/{jid}/log").text[-3000:]
                raise AssertionError(f"the job is {job['state']}: {exceptions}\n{log}")
            return job if job["state"] in states else None

        return eventually(there, f"job {jid} to be {' or '.join(states)}")

    def await_trigger(self, jid: str, request_id: str) -> dict[str, Any]:
        def done() -> dict[str, Any] | None:
            answer = self.get(f"/jobs/{jid}/savepoints/{request_id}")
            return answer if answer["status"]["id"] == "COMPLETED" else None

        return eventually(done, "the savepoint")["operation"]

    def await_report(self, jid: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            report = self.get(f"/jobs/{jid}/report")
            return report if holds(report) else None

        return eventually(there, "the report")


def eventually(look: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Look again and again until there is something."""
    deadline = time.monotonic() + patience_s
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"waited {patience_s:.0f} s for {what}"
        time.sleep(0.05)
    return found


@contextmanager
def dispatcher(storage: Path, *arguments: str, **environment: str) -> Iterator[RunningDispatcher]:
    """Started on a free port; ended by its id, with its jobs' processes. If the arguments say nothing about a
    token, requests have the one that the dispatcher has made."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "millpond.dispatcher",
            "--storage",
            str(storage),
            "--port",
            "0",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("millpond dispatcher: "), line
    own_token = not {"--token-file", "--no-token"} & set(arguments)
    token = (storage / "token").read_text().strip() if own_token else None
    running = RunningDispatcher(process, line.split(": ", 1)[1].strip(), token)
    try:
        yield running
    finally:
        running.http.close()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()
