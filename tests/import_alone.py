"""Imports each module named on the command line in a process of its own, where nothing else of Millpond is.

Processes are forked from one that has loaded the large libraries, and nothing of Millpond: a fresh
interpreter for each of some hundred modules would take minutes.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback

LIBRARIES = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.parquet",
    "pyspark.sql",
    "cloudpickle",
    "fastapi",
    "httpx",
)


def main(names: list[str]) -> int:
    for library in LIBRARIES:
        importlib.import_module(library)
    assert not any(name.partition(".")[0] == "millpond" for name in sys.modules)
    failed = [name for name in names if not _imports_alone(name)]
    print(
        f"cannot be imported alone: {', '.join(failed)}"
        if failed
        else f"{len(names)} modules imported alone"
    )
    return 1 if failed else 0


def _imports_alone(name: str) -> bool:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            importlib.import_module(name)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
