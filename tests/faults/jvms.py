"""Finds the JVMs of a process, and makes Java fail when a test wants it to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from millpond.executors.spark.java import find_java


def jvms_of(pid: int) -> list[int]:
    """The JVMs that a process has started and that have not ended."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                found.append(int(child))
    return found


def kill_jvm(pid: int) -> int:
    """Kill Spark's driver process of a Python process; returns its id."""
    (jvm,) = jvms_of(pid)
    os.kill(jvm, signal.SIGKILL)
    return jvm


class FragileJava:
    """A JAVA_HOME with the machine's Java, which can be told to fail when Spark is started."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._failures, self._starts = home / "failures", home / "starts"
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(
            "#!/bin/sh\n"
            'case "$*" in *org.apache.spark.launcher.Main*)\n'
            f"    echo >> '{self._starts}'\n"
            f"    if [ -s '{self._failures}' ]; then sed -i 1d '{self._failures}'; exit 1; fi;;\n"
            "esac\n"
            f"exec '{find_java().executable}' \"$@\"\n"
        )
        java.chmod(0o700)

    def fail(self, times: int) -> None:
        """The next so many starts of Spark."""
        self._failures.write_text("\n" * times)

    def starts(self) -> int:
        """How often Spark was started, or was to be."""
        return self._starts.read_text().count("\n")
