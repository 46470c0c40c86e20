"""The product itself: `millpond capping run ...`, several times in one process, timed.

python -m bench.capping.product_job SETTINGS_JSON    prints a line of JSON for each run
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

from millpond.cli.main import main as millpond


def main(runs: list[list[str]]) -> None:
    for arguments in runs:
        started_s = time.monotonic()
        with contextlib.redirect_stdout(sys.stderr):
            code = millpond(["capping", "run", *arguments])
        assert not code, f"exit code {code}"
        print(json.dumps({"seconds": time.monotonic() - started_s}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1])["runs"])
