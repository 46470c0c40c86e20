"""Another user of the machine, who tries what a cluster leaves open. Run as a process of its own:

    python tests/stranger.py

reads {"ports": [[host, port]], "requests": [HTTP], "messages": [of other protocols], "files": [path],
"sockets": [path]} from standard input, becomes `nobody` if it may, and writes
{"user": id, "answers": [[host, port, request, answer]], "opened": [path]}.
What is not answered within a moment counts as not answered. What does not answer the first request with HTTP
gets the messages instead of the others.
"""

from __future__ import annotations

import encodings.idna  # now: Python may be where only its owner can read it
import encodings.latin_1  # noqa: F401
import json
import os
import pwd
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

_PATIENCE_S = 3.0
_MOST_BYTES = 200_000


def become_nobody() -> None:
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)


def ask(host: str, port: int, request: str) -> str:
    """What comes back; nothing if the connection is refused, closed, or nobody answers."""
    answer = b""
    try:
        with socket.create_connection((host, port), _PATIENCE_S) as connection:
            connection.sendall(request.encode("latin-1"))
            while len(answer) < _MOST_BYTES and (part := connection.recv(65536)):
                answer += part
    except OSError:
        pass
    return answer.decode("latin-1")


def can_connect(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(path.replace("@", "\0", 1) if path.startswith("@") else path)
        except OSError:
            return False
    return True


def can_read(path: str) -> bool:
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def main() -> None:
    work = json.load(sys.stdin)
    become_nobody()
    first, *others = work["requests"]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda own: [*own, first, ask(*own, first)], work["ports"]))
        tries = [
            (host, port, text)
            for host, port, _, answer in answers
            for text in (others if answer.startswith("HTTP/") else work["messages"])
        ]
        answers += pool.map(lambda own: [*own, ask(*own)], tries)
    opened = [path for path in work["files"] if can_read(path)]
    opened += [path for path in work["sockets"] if can_connect(path)]
    json.dump({"user": os.getuid(), "answers": answers, "opened": opened}, sys.stdout)


if __name__ == "__main__":
    main()
