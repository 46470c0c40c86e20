"""The dispatcher's process: arguments, leadership, REST server, the end."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.dispatcher.leadership import FileLeadership, Leadership
from millpond.dispatcher.open_leadership import HA_CLUSTER_ID, HA_QUORUM, HA_TYPE, open_leadership
from millpond.dispatcher.resources import Resources
from millpond.dispatcher.rest.app import make_app
from millpond.dispatcher.rest.security import Security, is_loopback
from millpond.dispatcher.service import Dispatcher
from millpond.dispatcher.storage import Storage
from millpond.dispatcher.supervisor import Supervisor
from millpond.dispatcher.token_file import NAME as TOKEN_NAME
from millpond.dispatcher.token_file import make_token_file, read_token
from millpond.errors import MillpondError, SetupError
from millpond.executors.spark.master_page import MasterPage

DEFAULT_PORT = 8081
_log = logging.getLogger(__name__)


@dataclass
class DispatcherSettings:
    """`address`: where clients reach this dispatcher, if it is not where it listens. `token_file`: has the
    token that clients must have; None: `token` in the storage, made if it is not there. `no_token`: anybody
    who reaches the dispatcher can use it."""

    storage: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    master: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    zookeeper: str | None = None
    cluster_id: str | None = None
    token_file: Path | None = None
    no_token: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    allow_uploads: bool | None = None
    address: str | None = None


class DispatcherServer:
    """Listens as soon as it is made; `run` serves until `stop` or a signal."""

    def __init__(self, settings: DispatcherSettings) -> None:
        if (settings.tls_cert is None) != (settings.tls_key is None):
            raise SetupError("TLS needs both a certificate and its key: --tls-cert, --tls-key.")
        self._settings = settings
        _check_no_token(settings)
        self._socket = _listen(settings.host, settings.port)
        port = self._socket.getsockname()[1]
        scheme = "http" if settings.tls_cert is None else "https"
        self.address = settings.address or f"{scheme}://{_in_url(settings.host)}:{port}"
        storage = Storage(settings.storage)
        leadership = _leadership(settings, storage)
        # With ZooKeeper another dispatcher, perhaps on another host, goes on with them.
        self._suspends_jobs = isinstance(leadership, FileLeadership)
        self.dispatcher = Dispatcher(
            storage, leadership, Supervisor(storage, leadership), _for_jobs(settings)
        )
        self.token_file = _token_file(settings, storage)
        token = None if self.token_file is None else read_token(self.token_file)
        security = Security(settings.host, token, settings.allow_uploads)
        if not security.is_loopback and token is None:
            _log.warning(
                "The dispatcher listens on %s without a token: whoever reaches it can run programs.",
                settings.host,
            )
        resources = Resources(settings.master, _master_page(settings.settings))
        app = make_app(self.dispatcher, security, resources, self.shut_down)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            server_header=False,
            timeout_graceful_shutdown=3,
        )
        self._server = uvicorn.Server(config)

    def run(self, ready: Callable[[str], None]) -> None:
        """`ready` is called with the address when requests are accepted."""
        try:
            self.dispatcher.start(self.address)
            threading.Thread(target=self._tell, args=(ready,), daemon=True).start()
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()
            self.dispatcher.close(self._suspends_jobs)

    def _tell(self, ready: Callable[[str], None]) -> None:
        while not self._server.started and not self._server.should_exit:
            threading.Event().wait(0.02)
        ready(self.address)

    def stop(self) -> None:
        self._server.should_exit = True

    def shut_down(self) -> None:
        """Asked for by a client: with all jobs, whoever else could go on with them."""
        self._suspends_jobs = True
        self.stop()


def _check_no_token(settings: DispatcherSettings) -> None:
    if not settings.no_token:
        return
    if settings.token_file is not None:
        raise SetupError("--no-token and --token-file cannot be together.")
    if not is_loopback(settings.host) and not settings.allow_uploads:
        raise SetupError(
            f"Without a token everybody who reaches {settings.host} could use this dispatcher. Leave "
            "--no-token out, or add --allow-uploads if that is what you want."
        )


def _token_file(settings: DispatcherSettings, storage: Storage) -> Path | None:
    if settings.no_token:
        return None
    return settings.token_file or make_token_file(storage.root / TOKEN_NAME)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as problem:
        raise SetupError(
            f"The dispatcher cannot listen on {host}:{port}: {problem.strerror}. --port names another port "
            "(0: any that is free)."
        ) from None
    return listener


def _in_url(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _leadership(settings: DispatcherSettings, storage: Storage) -> Leadership:
    asked = dict(settings.settings)
    if settings.zookeeper is not None:
        asked |= {HA_TYPE.key: "zookeeper", HA_QUORUM.key: settings.zookeeper}
    if settings.cluster_id is not None:
        asked[HA_CLUSTER_ID.key] = settings.cluster_id
    return open_leadership(Configuration.from_dict(asked), storage.root)


def _master_page(settings: dict[str, str]) -> MasterPage | None:
    address = settings.get(options.MASTER_UI.key)
    key_file = settings.get(options.MASTER_UI_KEY_FILE.key)
    return None if address is None else MasterPage(address, Path(key_file) if key_file else None)


def _for_jobs(settings: DispatcherSettings) -> dict[str, str]:
    """On a cluster a job gets as many cores as it has subtasks, so that there are some left for others."""
    own = dict(settings.settings)
    if settings.master is not None:
        own.setdefault(options.MASTER.key, settings.master)
    if (settings.master or "").startswith("spark://"):
        own.setdefault(options.PARALLELISM.key, "1")
    return own


# --- command line --------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m millpond.dispatcher",
        description="Accepts programs, runs them as jobs, shows them: REST and dashboard.",
    )
    parser.add_argument(
        "--storage",
        type=Path,
        required=True,
        help="folder for jobs; all dispatchers and workers see it",
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (127.0.0.1)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="8081; 0: any that is free")
    parser.add_argument("--address", help="where clients reach it, if not there: http://NAME:PORT")
    parser.add_argument(
        "--master", help="Spark master of jobs: local[*], spark://HOST:PORT, yarn, k8s://..."
    )
    parser.add_argument(
        "-D",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting for all jobs",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        help="HOST:PORT,... : several dispatchers, one of which leads",
    )
    parser.add_argument("--cluster-id", help="tells clusters in one ZooKeeper apart (default)")
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument(
        "--token-file",
        type=Path,
        help="file with the token that clients must have (default: token in the storage, made if missing)",
    )
    tokens.add_argument(
        "--no-token",
        action="store_true",
        help="let everybody who reaches it use it: every user of this machine can run programs as you",
    )
    parser.add_argument("--tls-cert", help="certificate (PEM)")
    parser.add_argument("--tls-key", help="its key (PEM)")
    parser.add_argument(
        "--allow-uploads",
        action="store_true",
        default=None,
        help="also if it listens beyond this machine",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    parsed = build_parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server stops by them, and then raises them again: jobs are still to be looked after.
        signal.signal(number, lambda *_: None)
    try:
        server = DispatcherServer(_settings(parsed))
        server.run(lambda address: _announce(address, server.token_file))
    except MillpondError as problem:
        print(f"millpond: {problem}", file=sys.stderr)
        return 1
    return 0


def _announce(address: str, token_file: Path | None) -> None:
    print(f"millpond dispatcher: {address}", flush=True)
    if token_file is not None:
        print(f"millpond: clients need the token in {token_file}", flush=True)


def _settings(parsed: argparse.Namespace) -> DispatcherSettings:
    return DispatcherSettings(
        storage=parsed.storage,
        host=parsed.host,
        port=parsed.port,
        master=parsed.master,
        settings=key_values(parsed.settings),
        zookeeper=parsed.zookeeper,
        cluster_id=parsed.cluster_id,
        token_file=parsed.token_file,
        no_token=parsed.no_token,
        tls_cert=parsed.tls_cert,
        tls_key=parsed.tls_key,
        allow_uploads=parsed.allow_uploads,
        address=parsed.address,
    )


def key_values(given: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise SetupError(f"-D needs KEY=VALUE, not '{text}'.")
        settings[key] = value
    return settings
