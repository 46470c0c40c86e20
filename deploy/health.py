"""For HEALTHCHECK: whether the dispatcher of this container answers. Containers without one are healthy."""

import sys
import urllib.error
import urllib.request
from pathlib import Path

ADDRESS = "http://127.0.0.1:8081/"


def has_dispatcher() -> bool:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"millpond.dispatcher\0" in process.read_bytes():
                return True
        except OSError:  # it has ended
            continue
    return False


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=3):
            return True
    except urllib.error.HTTPError as answer:
        return answer.code < 500  # it wants a token, for instance
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if answers(ADDRESS) or not has_dispatcher() else 1)
