"""The Python of Spark's workers on this machine: the program's own, with another module path.

Spark puts a zip with PySpark's sources first on its workers' path, and Python compiles what it imports from a
zip every time: half a second for every process that Spark starts. The installed PySpark is the same, and has
byte code. Workers are therefore started by a script that replaces the path.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

from millpond.executors.spark.class_archive import prepared_folder

_PATH = "MILLPOND_WORKER_PYTHONPATH"


def worker_python() -> str:
    """Return what PYSPARK_PYTHON must be set to, and set the path that the workers will have. Call this when
    PYTHONPATH is complete. Returns the plain Python if PySpark is not installed as files, or if no script can
    be written."""
    import py4j  # type: ignore[import-untyped]
    import pyspark

    homes = [str(Path(package.__file__).parent.parent) for package in (pyspark, py4j)]
    if not all(map(os.path.isdir, homes)) or "spark.zip" in homes[0]:
        return sys.executable
    try:
        script = _script()
    except OSError:
        return sys.executable
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ[_PATH] = os.pathsep.join(dict.fromkeys(path for path in given + homes if path))
    return str(script)


def _script() -> Path:
    """Return the path of the script, which is made once for this Python."""
    text = f'#!/bin/sh\nPYTHONPATH="${{{_PATH}-$PYTHONPATH}}" exec {shlex.quote(sys.executable)} "$@"\n'
    number = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = prepared_folder() / f"worker-python-{number}"
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(text)
        aside.chmod(0o755)
        os.replace(aside, path)
    return path
