"""`millpond start-cluster`: starts Spark and dispatchers on this machine, in the background."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from millpond.cli.client.connection import LOOPBACK, Target
from millpond.cli.cluster.record import (
    CLUSTER_FOLDER_HELP,
    ClusterRecord,
    cluster_folder,
    locked,
    make_private,
    read_cluster,
)
from millpond.cli.cluster.starting import ClusterStarter
from millpond.cli.commands import Commands
from millpond.cli.dashboard import dashboard_link
from millpond.cli.exit_codes import UsageError
from millpond.cli.programs import parse_settings
from millpond.dispatcher.token_file import NAME as TOKEN_NAME
from millpond.dispatcher.token_file import make_token_file
from millpond.errors import ClusterError, SetupError

DISPATCHER = (sys.executable, "-m", "millpond.dispatcher")
_MASTER_PORT = 7077
_PAGE_PORT = 8080
_DISPATCHER_PACKAGES = ("fastapi", "uvicorn", "httpx")
_PAGE_SETTING = "millpond.cluster.master-ui"  # see common/options.py
_PAGE_KEY_SETTING = "millpond.cluster.master-ui-key-file"


def add_commands(commands: Commands) -> None:
    """Add `start-cluster`."""
    start = commands.add_parser(
        "start-cluster",
        help="start Spark and a dispatcher with a dashboard on this machine",
        description="Start a Spark master, workers and a dispatcher in the background. `millpond run` sends "
        "programs to the cluster, and `millpond stop-cluster` ends it.",
    )
    start.add_argument("--dir", metavar="DIR", help=CLUSTER_FOLDER_HELP)
    start.add_argument(
        "--storage",
        metavar="DIR",
        help="folder for jobs (default: `storage` in the cluster's folder)",
    )
    start.add_argument(
        "--host",
        default="127.0.0.1",
        help="address on which Spark and the dispatchers listen (default: 127.0.0.1)",
    )
    start.add_argument(
        "-D",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting for all jobs (see `millpond settings`); can be repeated",
    )
    start.add_argument(
        "--timeout",
        type=float,
        default=90.0,
        metavar="S",
        help="seconds that each process has to start and answer (default: 90)",
    )
    start.add_argument(
        "--json", action="store_true", help="print the contents of cluster.json, as JSON"
    )
    _add_spark_options(start.add_argument_group("Spark"))
    _add_dispatcher_options(start.add_argument_group("dispatchers"))
    start.set_defaults(call=_run)


def _add_spark_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workers", type=int, metavar="N", help="number of Spark workers (default: 1)"
    )
    group.add_argument(
        "--cores",
        type=int,
        metavar="N",
        help="cores of each worker (default: the cores of this machine, divided by the workers)",
    )
    group.add_argument(
        "--memory", metavar="SIZE", help="memory of each worker, such as 512m or 4g (default: 2g)"
    )
    group.add_argument(
        "--local",
        action="store_true",
        help="start no Spark cluster: each job runs its own local Spark",
    )
    group.add_argument(
        "--master",
        metavar="URL",
        help="use this Spark (spark://HOST:PORT, yarn, k8s://...) instead of starting one",
    )


def _add_dispatcher_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--port",
        type=int,
        default=8081,
        help="port of the dispatcher, and the ones after it for further dispatchers; 0 picks a free port "
        "(default: 8081)",
    )
    group.add_argument(
        "--dispatchers",
        type=int,
        default=1,
        metavar="N",
        help="number of dispatchers: one leads, the others stand by (default: 1)",
    )
    group.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        help="servers of the ZooKeeper that elects the leading dispatcher, as HOST:PORT,... "
        "(default: the dispatchers agree by a lock in the storage folder)",
    )
    group.add_argument(
        "--cluster-id",
        metavar="ID",
        help="name of the cluster in ZooKeeper, if several share one (default: default)",
    )
    tokens = group.add_mutually_exclusive_group()
    tokens.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token that requests must carry (default: `token` in the cluster's folder, "
        "created if missing)",
    )
    tokens.add_argument(
        "--no-token",
        action="store_true",
        help="accept requests without a token: every user of this machine can then run programs as you",
    )
    group.add_argument(
        "--allow-uploads",
        action="store_true",
        help="accept programs even if other machines can reach --host",
    )
    group.add_argument(
        "--tls-cert", metavar="FILE", help="certificate (PEM) with which to serve TLS"
    )
    group.add_argument("--tls-key", metavar="FILE", help="private key (PEM) of the certificate")


def _run(parsed: argparse.Namespace) -> int:
    record = start_cluster(parsed)
    if parsed.json:
        print(json.dumps(record.to_json(), indent=1))
        return 0
    for process in record.processes:
        print(f"{process.title:<14} {process.address:<28} process {process.pid}")
    folder = cluster_folder(parsed.dir)
    address = record.of("dispatcher")[0].address
    link = dashboard_link(Target([address], record.token_file, record.ca_file, "started"))
    print(f"The cluster is ready. Dashboard: {link}   Logs: {folder / 'logs'}")
    where = f" --dir {parsed.dir}" if parsed.dir else ""
    print(f"Next: millpond run{where} app.py, millpond list{where}, millpond stop-cluster{where}")
    return 0


def start_cluster(
    parsed: argparse.Namespace, dispatcher: Sequence[str] = DISPATCHER
) -> ClusterRecord:
    """Start a cluster and return its record when all processes answer. `dispatcher` is the beginning of the
    command that starts a dispatcher.

    Raise SetupError, UsageError or ClusterError if that is not possible; nothing is left running then."""
    _check_packages()
    _check_spark(parsed)
    _check_files(parsed)
    parse_settings(parsed.settings)
    _check_ports(parsed)
    _check_token(parsed)
    folder = make_private(cluster_folder(parsed.dir))
    with locked(folder):
        _refuse_second(folder)
        record = _new_record(parsed, folder)
        starter = ClusterStarter(folder, record, parsed.host, parsed.timeout)
        with starter:
            master = "local[*]" if parsed.local else parsed.master
            if master is None:
                workers = parsed.workers or 1
                cores = parsed.cores or max(1, (os.cpu_count() or 1) // workers)
                port = _master_port(parsed.host, starter.master_port())
                master = starter.start_master(port, _free_port(parsed.host, _PAGE_PORT))
                for number in range(1, workers + 1):
                    starter.start_worker(number, cores, parsed.memory or "2g")
            for number in range(1, parsed.dispatchers + 1):
                port = parsed.port + number - 1 if parsed.port else 0
                arguments = _dispatcher_arguments(parsed, port, record, master)
                if (page := starter.master_page) is not None:
                    arguments += ["-D", f"{_PAGE_SETTING}={page.address}"]
                    arguments += ["-D", f"{_PAGE_KEY_SETTING}={page.key_file}"]
                starter.start_dispatcher(number, [*dispatcher, *arguments])
            starter.wait_for_all()
        return record


def _check_packages() -> None:
    missing = [name for name in _DISPATCHER_PACKAGES if find_spec(name) is None]
    if missing:
        raise SetupError(
            f"start-cluster needs {', '.join(missing)}: pip install 'millpond[cluster]'."
        )


def _check_spark(parsed: argparse.Namespace) -> None:
    starts_spark = not (parsed.local or parsed.master)
    spark_options = [parsed.workers, parsed.cores, parsed.memory]
    if not starts_spark and any(value is not None for value in spark_options):
        raise UsageError(
            "--workers, --cores and --memory cannot be used together with --local or --master: no Spark is "
            "started then"
        )
    if starts_spark and parsed.host in ("0.0.0.0", "::"):
        raise UsageError(
            f"--host must be an address that Spark's workers can connect to, not {parsed.host}"
        )
    if parsed.local and parsed.master:
        raise UsageError("--local and --master cannot be used together")
    for name in ("workers", "cores", "dispatchers"):
        if getattr(parsed, name) is not None and getattr(parsed, name) < 1:
            raise UsageError(f"--{name} must be at least 1")
    if parsed.memory and not re.fullmatch(r"[1-9]\d*[mgMG]", parsed.memory):
        raise UsageError(f"--memory must look like 512m or 2g, not '{parsed.memory}'")


def _check_files(parsed: argparse.Namespace) -> None:
    if bool(parsed.tls_cert) != bool(parsed.tls_key):
        raise UsageError("--tls-cert and --tls-key must be given together")
    for name in ("token_file", "tls_cert", "tls_key"):
        file = getattr(parsed, name)
        if file and not os.path.isfile(file):
            raise UsageError(f"--{name.replace('_', '-')}: there is no file {file}")


def _check_ports(parsed: argparse.Namespace) -> None:
    for number in range(parsed.dispatchers if parsed.port else 0):
        if not _is_free(parsed.host, parsed.port + number):
            raise ClusterError(
                f"{parsed.host}:{parsed.port + number} is in use, or {parsed.host} is not an address of this "
                "machine. Choose another --port (0 picks a free one) or --host."
            )


def _check_token(parsed: argparse.Namespace) -> None:
    if not parsed.no_token or parsed.host in LOOPBACK:
        return
    if not parsed.allow_uploads:
        raise UsageError(
            f"without a token, everyone who can reach {parsed.host} could use this cluster; remove "
            "--no-token, or add --allow-uploads if that is what you want"
        )
    print(f"millpond: everyone who can reach {parsed.host} can use this cluster", file=sys.stderr)


def _refuse_second(folder: Path) -> None:
    record = read_cluster(folder)
    if record is None:
        return
    if not record.is_here():
        raise ClusterError(
            f"The cluster in {folder} runs on the machine {record.machine}. Stop it there, or choose another "
            "--dir."
        )
    living = [process.title for process in record.living()]
    if living:
        address = next(iter(record.dispatcher_addresses()), "no dispatcher")
        raise ClusterError(
            f"A cluster is already running in {folder} ({address}; running: {', '.join(living)}). "
            "Stop it with `millpond stop-cluster`, or choose another --dir."
        )


def _new_record(parsed: argparse.Namespace, folder: Path) -> ClusterRecord:
    def path(given: str | None) -> str | None:
        return os.path.abspath(given) if given else None

    storage = path(parsed.storage) or str(folder / "storage")
    record = ClusterRecord(storage, 0)
    record.token_file, record.ca_file = path(parsed.token_file), path(parsed.tls_cert)
    if record.token_file is None and not parsed.no_token:
        record.token_file = str(make_token_file(folder / TOKEN_NAME))
    return record


def _dispatcher_arguments(
    parsed: argparse.Namespace, port: int, record: ClusterRecord, master: str
) -> list[str]:
    arguments = ["--host", parsed.host, "--port", str(port), "--storage", record.storage]
    arguments += ["--master", master]
    for setting in parsed.settings:
        arguments += ["-D", setting]
    for name in ("zookeeper", "cluster_id"):
        if getattr(parsed, name):
            arguments += [f"--{name.replace('_', '-')}", getattr(parsed, name)]
    if parsed.allow_uploads:
        arguments.append("--allow-uploads")
    arguments += ["--token-file", record.token_file] if record.token_file else ["--no-token"]
    for name in ("tls_cert", "tls_key"):
        if getattr(parsed, name):
            arguments += [f"--{name.replace('_', '-')}", os.path.abspath(getattr(parsed, name))]
    return arguments


def _master_port(host: str, earlier: int | None) -> int:
    if earlier is None:
        return _free_port(host, _MASTER_PORT)
    if not _is_free(host, earlier):
        raise ClusterError(
            f"{host}:{earlier} is in use, but the jobs of this cluster look for the Spark master there. Free "
            "the port, or choose another --dir."
        )
    return earlier


def _free_port(host: str, first: int) -> int:
    for port in range(first, first + 200):
        if _is_free(host, port):
            return port
    raise ClusterError(
        f"None of the 200 ports from {first} on is free on {host}, or it is not an address of this machine. "
        "Choose another --host."
    )


def _is_free(host: str, port: int) -> bool:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError):
        return False
    return True
