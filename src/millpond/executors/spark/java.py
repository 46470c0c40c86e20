"""Finds Java and says what is wrong with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from millpond.errors import SetupError

MIN_JAVA = 17
_ADVICE = (
    f"Spark needs Java {MIN_JAVA} or newer: install it (Debian/Ubuntu: apt-get install "
    f"openjdk-{MIN_JAVA}-jre-headless; macOS: brew install openjdk@{MIN_JAVA}) or set JAVA_HOME."
)


class Java(NamedTuple):
    """A Java installation: the path of its `java` command, and its version as it states it."""

    executable: str
    version: str


def find_java() -> Java:
    """Return the Java that Spark will use. Raises SetupError, which says how to get one, if there is none or
    it is too old."""
    home = os.environ.get("JAVA_HOME")
    executable = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not executable or not os.path.exists(executable):
        where = f"JAVA_HOME is {home}, but there is no bin/java in it" if home else "none found"
        raise SetupError(f"No Java: {where}. {_ADVICE}")
    version = _version_from_release_file(executable) or _version_from_command(executable)
    if version is None:
        raise SetupError(f"{executable} does not report its version. {_ADVICE}")
    parts = [int(part) for part in re.findall(r"\d+", version)]
    major = parts[1] if parts[0] == 1 and len(parts) > 1 else parts[0]
    if major < MIN_JAVA:
        raise SetupError(f"{executable} is Java {major}, which is too old. {_ADVICE}")
    return Java(executable, version)


def _version_from_release_file(executable: str) -> str | None:
    """Return the version in the file that every JDK has; reading it is far cheaper than starting Java."""
    release = Path(os.path.realpath(executable)).parent.parent / "release"
    try:
        found = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(), re.MULTILINE)
    except OSError:
        return None
    return found.group(1) if found else None


def _version_from_command(executable: str) -> str | None:
    answer = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', answer.stderr)
    return found.group(1) if found else None
