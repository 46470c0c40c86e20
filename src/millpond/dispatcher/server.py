"""The dispatcher's process: command line, leadership, REST server, and how it ends."""

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
    """How to run a dispatcher.

    `settings` are those of all jobs and of leadership; `master` is the Spark master of jobs. `token_file`
    holds the token that clients must send; None means the file `token` in the storage, which is created if it
    is missing. With `no_token`, anybody who reaches the dispatcher can use it. `allow_uploads` is described
    at `Security`. `address` is where clients reach the dispatcher, if that is not where it listens."""

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
    """A dispatcher with its REST server. It listens as soon as it is created; `run` serves until `stop` or a
    signal. Creating one raises SetupError if the settings contradict each other or it cannot listen."""

    def __init__(self, settings: DispatcherSettings) -> None:
        if (settings.tls_cert is None) != (settings.tls_key is None):
            raise SetupError("TLS needs both --tls-cert and --tls-key.")
        self._settings = settings
        _check_no_token(settings)
        self._socket = _listen(settings.host, settings.port)
        port = self._socket.getsockname()[1]
        scheme = "http" if settings.tls_cert is None else "https"
        self.address = settings.address or f"{scheme}://{_in_url(settings.host)}:{port}"
        storage = Storage(settings.storage)
        leadership = _leadership(settings, storage)
        # With ZooKeeper another dispatcher, perhaps on another host, takes the jobs over.
        self._suspends_jobs = isinstance(leadership, FileLeadership)
        self.dispatcher = Dispatcher(
            storage, leadership, Supervisor(storage, leadership), _for_jobs(settings)
        )
        self.token_file = _token_file(settings, storage)
        token = None if self.token_file is None else read_token(self.token_file)
        security = Security(settings.host, token, settings.allow_uploads)
        if not security.is_loopback and token is None:
            _log.warning(
                "The dispatcher listens on %s without a token, so anybody who reaches it can run programs.",
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
        """Serve until `stop` or a signal; then give up leadership, and end the job managers unless another
        dispatcher can take over their jobs. `ready` is called with the address, in a thread of its own, when
        requests are accepted."""
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
        """Make `run` return soon. May be called from any thread."""
        self._server.should_exit = True

    def shut_down(self) -> None:
        """Stop because a client asked for it, and end all job managers, even if another dispatcher could take
        over their jobs."""
        self._suspends_jobs = True
        self.stop()


def _check_no_token(settings: DispatcherSettings) -> None:
    if not settings.no_token:
        return
    if settings.token_file is not None:
        raise SetupError("--no-token and --token-file exclude each other.")
    if not is_loopback(settings.host) and not settings.allow_uploads:
        raise SetupError(
            f"Without a token, anybody who reaches {settings.host} could use this dispatcher. Omit "
            "--no-token, or add --allow-uploads if that is what you want."
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
            f"The dispatcher cannot listen on {host}:{port}: {problem.strerror}. Choose another port with "
            "--port (0 means any free port)."
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
    """Return the default settings of jobs. On a standalone cluster a job gets as many cores as it has
    subtasks, so the default parallelism of 1 leaves cores for other jobs."""
    job_settings = dict(settings.settings)
    if settings.master is not None:
        job_settings.setdefault(options.MASTER.key, settings.master)
    if (settings.master or "").startswith("spark://"):
        job_settings.setdefault(options.PARALLELISM.key, "1")
    return job_settings


# --- command line --------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    """Return the parser for the command line of `python -m millpond.dispatcher`."""
    parser = argparse.ArgumentParser(
        prog="python -m millpond.dispatcher",
        description="Run a dispatcher: it accepts programs, runs them as jobs, and shows them by REST and on "
        "a dashboard.",
    )
    parser.add_argument(
        "--storage",
        type=Path,
        required=True,
        help="folder for jobs, which all dispatchers and workers can reach",
    )
    _add_address_options(parser)
    parser.add_argument(
        "--master", help="Spark master of jobs: local[*], spark://HOST:PORT, yarn, k8s://..."
    )
    parser.add_argument(
        "-D",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting for all jobs (repeatable)",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT,...",
        help="ZooKeeper's servers, through which several dispatchers choose a leader",
    )
    parser.add_argument(
        "--cluster-id", help="distinguishes clusters that share a ZooKeeper (default: default)"
    )
    _add_security_options(parser)
    return parser


def _add_address_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help=f"port to listen on (default: {DEFAULT_PORT}); 0 means any free port",
    )
    parser.add_argument(
        "--address",
        metavar="http://NAME:PORT",
        help="where clients reach the dispatcher, if that is not where it listens",
    )


def _add_security_options(parser: argparse.ArgumentParser) -> None:
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument(
        "--token-file",
        type=Path,
        help="file with the token that requests must carry (default: `token` in the storage folder, created "
        "if missing)",
    )
    tokens.add_argument(
        "--no-token",
        action="store_true",
        help="accept requests without a token: every user of this machine can then run programs as you",
    )
    parser.add_argument("--tls-cert", help="certificate (PEM) with which to serve TLS")
    parser.add_argument("--tls-key", help="private key (PEM) of the certificate")
    parser.add_argument(
        "--allow-uploads",
        action="store_true",
        default=None,
        help="accept programs even if other machines can reach the dispatcher",
    )


def main(arguments: list[str] | None = None) -> int:
    """Run a dispatcher until a signal or a client ends it, and return the exit code. Without `arguments`,
    those of the process count."""
    parsed = build_parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn stops on these signals and then raises them again, when jobs still have to be suspended.
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
    """Return settings given as KEY=VALUE, of which later ones override earlier ones. Raise SetupError for any
    other text."""
    settings: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise SetupError(f"-D needs KEY=VALUE, not '{text}'.")
        settings[key] = value
    return settings
