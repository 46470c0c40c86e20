"""Contenders for leadership: in this process, and as processes of their own that can be killed.

    python -m tests.dispatcher.contenders KIND WHERE ADDRESS

takes part, prints "granted EPOCH" and "revoked", and does what the lines of its input say: "put NAME VALUE".
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from millpond.dispatcher.leadership import FileLeadership, Leadership
from millpond.dispatcher.zookeeper_leadership import ZooKeeperLeadership
from millpond.errors import LeadershipLost
from tests.servers import wait_until

SESSION_TIMEOUT_S = 3.0
_PATIENCE_S = 60


def open_contender(kind: str, where: str) -> Leadership:
    """`where` is a folder, or ZooKeeper's address and a root: "127.0.0.1:2181/root"."""
    if kind == "file":
        return FileLeadership(Path(where))
    hosts, _, root = where.partition("/")
    return ZooKeeperLeadership(hosts, root=root, session_timeout_s=SESSION_TIMEOUT_S)


class Contender:
    """A leadership that has been started, and what it was told."""

    def __init__(
        self,
        leadership: Leadership,
        address: str,
        on_grant: Callable[[int], None] = lambda epoch: None,
    ) -> None:
        self.leadership = leadership
        self.address = address
        self.told: list[int | None] = []  # epochs; None: revoked
        self._on_grant = on_grant
        self._changed = threading.Condition()
        leadership.start(address, self._granted, lambda: self._note(None))

    def _granted(self, epoch: int) -> None:
        self._note(epoch)
        self._on_grant(epoch)

    def _note(self, what: int | None) -> None:
        with self._changed:
            self.told.append(what)
            self._changed.notify_all()

    def await_grant(self, above: int = 0) -> int:
        """The epoch of a grant above the given one."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._newest() > above, _PATIENCE_S), self.told
            return self._newest()

    def await_revoked(self, times: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.told.count(None) >= times, _PATIENCE_S)

    def _newest(self) -> int:
        return max((epoch for epoch in self.told if epoch is not None), default=0)


class ContenderProcess:
    """A contender in a process of its own."""

    def __init__(self, kind: str, where: str, address: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.dispatcher.contenders", kind, where, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def await_line(self, start: str) -> str:
        """The next line that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line.strip()
        raise AssertionError(f"the contender ended without saying '{start}'")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def _main(kind: str, where: str, address: str) -> None:
    leadership = open_contender(kind, where)

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    leadership.start(address, lambda epoch: say(f"granted {epoch}"), lambda: say("revoked"))
    for line in sys.stdin:
        _, name, value = line.split()
        believed = leadership.epoch
        began_s = time.monotonic()
        try:
            leadership.put_pointer(name, json.loads(value))
            outcome = "put"
        except LeadershipLost as problem:
            outcome = f"lost: {problem}"
        taken_s = time.monotonic() - began_s
        say(f"answer {outcome} (it believed in {believed}, {taken_s:.3f} s)")
    leadership.close()


def await_leader(leadership: Leadership, address: str) -> None:
    wait_until(lambda: leadership.leader_address() == address, f"{address} is not known to lead")


if __name__ == "__main__":
    _main(*sys.argv[1:])
