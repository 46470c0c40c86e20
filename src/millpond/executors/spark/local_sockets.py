"""Closes what Spark opens to every user of a machine: sockets between its JVMs and Python."""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import Any

from millpond.executors.slot.protocol import private_folder
from millpond.executors.slot.settings import base_folder

_UNIX_SOCKETS = "spark.python.unix.domain.socket"
# macOS allows 103 characters for the path of a socket; Spark's are BASE/spark/.UUID.sock.
_LONGEST_BASE = 103 - len("/spark/.00000000-0000-0000-0000-000000000000.sock")


def socket_settings() -> dict[str, str]:
    """Spark's settings for Unix sockets in a folder of this user, instead of TCP, between an executor and its
    Python workers. Over TCP the server through which workers reach Spark's state store asks nobody who they
    are. Makes the folder, so it is for Spark on this machine. Empty if no path is short enough."""
    bases = (base_folder(), f"/tmp/millpond-{os.getuid()}")
    base = next((own for own in bases if len(own) <= _LONGEST_BASE), None)
    if base is None:
        return {}
    folder = os.path.join(base, "spark")
    for path in (base, folder):
        private_folder(path)
    return {f"{_UNIX_SOCKETS}.enabled": "true", f"{_UNIX_SOCKETS}.dir": folder}


def guard_callbacks(gateway: Any) -> None:
    """Start the server through which the JVM calls this process (`foreachBatch`), for those only who have the
    gateway's token. PySpark would start it later, and for everybody: when the JVM is told the server's port,
    Py4J forgets the JVM's token. So here the JVM is told the token again."""
    from pyspark.java_gateway import ensure_callback_server_started

    parameters = gateway.callback_server_parameters
    if parameters.auth_token is not None:
        return
    parameters.auth_token = gateway.gateway_parameters.auth_token
    ensure_callback_server_started(gateway)
    client = gateway.java_gateway_server.getCallbackClient()
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, parameters.auth_token)


def remove_socket_at_exit(context: Any) -> None:
    """PySpark removes the socket of its accumulators only if the context is stopped."""
    address = context._accumulatorServer.server_address
    if isinstance(address, str):
        atexit.register(_remove, address)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
