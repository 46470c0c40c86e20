"""The product as people run it, in a process of its own: it runs, is killed, and is started again."""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import newest_epoch
from tests.servers import RedisServer, wait_until
from tests.slot.processes import executor_of, is_executor, slots_of


class Live:
    """`folder`: for rules, checkpoint and log. `more`: arguments of `capping run`."""

    def __init__(
        self,
        folder: Path,
        place: str,
        redis_server: RedisServer,
        rules: list[dict[str, Any]],
        *more: str,
        master: str = "local[2]",
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        path = folder / "rules.yaml"
        path.write_text(json.dumps({"rules": rules}))  # JSON is YAML
        self._arguments = [
            *("run", "--input", place, "--rules", str(path), "--redis", redis_server.url),
            *("--checkpoint", str(self.checkpoint), "--master", master, "--parallelism", "2"),
            *more,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "millpond", "capping", *self._arguments, *more],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def finish(self) -> int:
        """Work through what is there; returns where event time is then."""
        self.start("--until-end")
        assert self.process is not None
        assert self.process.wait(240) == 0, self.log()
        found = re.findall(r"as of (\S+ \S+) in event time", self.log())
        moment = datetime.datetime.fromisoformat(found[-1])
        return round(moment.timestamp() * 1000)

    def epochs(self) -> int:
        """The newest batch that is complete; -1 if none."""
        return newest_epoch(self.checkpoint / "frequency-capping")

    def await_progress(self, batches: int) -> None:
        goal = self.epochs() + batches
        wait_until(lambda: self.epochs() >= goal or self._has_ended(), "no progress", 120)
        assert self.epochs() >= goal, self.log()

    def _has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def log(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def letters(self) -> list[dict[str, Any]]:
        """Dead letters."""
        return [
            json.loads(line)
            for path in (self.checkpoint / "dead-letters").glob("[!.]*")
            for line in path.read_text().splitlines()
        ]

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 130, self.log()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_slot(self) -> None:
        for pid in slots_of(self.folder)[:1]:
            os.kill(pid, signal.SIGKILL)

    def kill_executor(self) -> None:
        """Of a cluster: one that has slots, if there is one."""
        executors = map(executor_of, slots_of(self.folder))
        for executor in list(filter(is_executor, executors))[:1]:
            os.kill(executor, signal.SIGKILL)

    def end(self) -> None:
        """Whatever happened."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        # Slots would wait for the job to be started again.
        (self.checkpoint / "frequency-capping" / "run").unlink(missing_ok=True)
        wait_until(lambda: not slots_of(self.folder), "slots outlive their job")
