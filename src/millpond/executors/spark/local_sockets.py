"""Closes to other users of a machine what Spark opens to all of them: sockets between its JVMs and Python."""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import TYPE_CHECKING

from millpond.executors.slot.protocol import private_folder
from millpond.executors.slot.settings import base_folder

if TYPE_CHECKING:
    from pyspark import SparkContext

_UNIX_SOCKETS = "spark.python.unix.domain.socket"
# macOS allows 103 characters for the path of a socket; Spark's are BASE/spark/.UUID.sock.
_LONGEST_BASE = 103 - len("/spark/.00000000-0000-0000-0000-000000000000.sock")


def socket_settings() -> dict[str, str]:
    """Return Spark's settings for Unix sockets, instead of TCP, between an executor and its Python workers,
    in a folder of this user: no other user can reach them, and they are faster. Creates the folder, so it is
    for Spark on this machine. Returns nothing if no path is short enough."""
    bases = (base_folder(), f"/tmp/millpond-{os.getuid()}")
    base = next((base for base in bases if len(base) <= _LONGEST_BASE), None)
    if base is None:
        return {}
    folder = os.path.join(base, "spark")
    for path in (base, folder):
        private_folder(path)
    return {f"{_UNIX_SOCKETS}.enabled": "true", f"{_UNIX_SOCKETS}.dir": folder}


def remove_socket_at_exit(context: SparkContext) -> None:
    """Remove the socket of PySpark's accumulators when this process ends. PySpark itself removes it only if
    the context is stopped."""
    address = context._accumulatorServer.server_address
    if isinstance(address, str):
        atexit.register(_remove, address)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
