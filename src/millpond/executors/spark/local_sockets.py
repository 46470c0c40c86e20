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
    from pyspark.java_gateway import JavaGateway

_UNIX_SOCKETS = "spark.python.unix.domain.socket"
# macOS allows 103 characters for the path of a socket; Spark's are BASE/spark/.UUID.sock.
_LONGEST_BASE = 103 - len("/spark/.00000000-0000-0000-0000-000000000000.sock")


def socket_settings() -> dict[str, str]:
    """Return Spark's settings for Unix sockets, instead of TCP, between an executor and its Python workers,
    in a folder of this user. Over TCP, the server through which workers reach Spark's state store would not
    check who they are. Creates the folder, so it is for Spark on this machine. Returns nothing if no path is
    short enough."""
    bases = (base_folder(), f"/tmp/millpond-{os.getuid()}")
    base = next((base for base in bases if len(base) <= _LONGEST_BASE), None)
    if base is None:
        return {}
    folder = os.path.join(base, "spark")
    for path in (base, folder):
        private_folder(path)
    return {f"{_UNIX_SOCKETS}.enabled": "true", f"{_UNIX_SOCKETS}.dir": folder}


def guard_callbacks(gateway: JavaGateway) -> None:
    """Start the server through which the JVM calls this process (`foreachBatch`), so that it serves only
    those who have the gateway's token. PySpark would start it later, and for everybody: when the JVM is told
    the server's port, Py4J forgets the JVM's token. That is why the JVM is told the token again here."""
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


def remove_socket_at_exit(context: SparkContext) -> None:
    """Remove the socket of PySpark's accumulators when this process ends. PySpark itself removes it only if
    the context is stopped."""
    address = context._accumulatorServer.server_address
    if isinstance(address, str):
        atexit.register(_remove, address)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
