"""`millpond start-cluster`: a Spark cluster and dispatchers on this machine, in the background."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millpond.cli.client.connection import LOOPBACK, Target
from millpond.cli.cluster.record import (
    ClusterRecord,
    cluster_folder,
    locked,
    make_private,
    read_cluster,
)
from millpond.cli.cluster.starting import ClusterStarter
from millpond.cli.dashboard import dashboard_link
from millpond.cli.exit_codes import UsageError
from millpond.cli.programs import parse_settings
from millpond.dispatcher.token_file import NAME as TOKEN_NAME
from millpond.dispatcher.token_file import make_token_file
from millpond.errors import ClusterError

DISPATCHER = (sys.executable, "-m", "millpond.dispatcher")
_MASTER_PORT = 7077
_PAGE_PORT = 8080
_PAGE_SETTING = "millpond.cluster.master-ui"  # see common/options.py
_PAGE_KEY_SETTING = "millpond.cluster.master-ui-key-file"


def add_commands(commands: Any) -> None:
    start = commands.add_parser(
        "start-cluster",
        help="start Spark and a dispatcher with a dashboard on this machine",
        description="Start a Spark master, workers and a dispatcher in the background. `millpond run` sends "
        "programs to it, `millpond stop-cluster` ends it.",
    )
    start.add_argument(
        "--dir", metavar="DIR", help="the cluster's folder (default: $MILLPOND_HOME or ~/.millpond)"
    )
    start.add_argument(
        "--storage",
        metavar="DIR",
        help="folder for jobs (default: storage in the cluster's folder)",
    )
    start.add_argument("--host", default="127.0.0.1", help="address of all of it (127.0.0.1)")
    start.add_argument(
        "--port", type=int, default=8081, help="of the dispatcher (8081); 0: any free one"
    )
    start.add_argument("--workers", type=int, metavar="N", help="Spark workers (1)")
    start.add_argument(
        "--cores", type=int, metavar="N", help="of each worker (default: the machine's, shared out)"
    )
    start.add_argument("--memory", metavar="SIZE", help="of each worker, such as 2g (2g)")
    start.add_argument(
        "--local", action="store_true", help="no Spark cluster: each job runs its own local Spark"
    )
    start.add_argument(
        "--master", metavar="URL", help="use this Spark (spark://, yarn, k8s://); start none"
    )
    start.add_argument(
        "-D",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting for all jobs; can be given several times",
    )
    start.add_argument(
        "--dispatchers", type=int, default=1, metavar="N", help="more than 1: others stand by (1)"
    )
    start.add_argument(
        "--zookeeper", metavar="HOSTS", help="HOST:PORT,... that elects the leading dispatcher"
    )
    start.add_argument("--cluster-id", metavar="ID", help="tells clusters at one ZooKeeper apart")
    tokens = start.add_mutually_exclusive_group()
    tokens.add_argument(
        "--token-file",
        metavar="FILE",
        help="requests must have the token in this file (default: token in the cluster's folder, made if "
        "missing)",
    )
    tokens.add_argument(
        "--no-token",
        action="store_true",
        help="let everybody who reaches the dispatcher use it: every user of this machine can run programs "
        "as you",
    )
    start.add_argument(
        "--allow-uploads",
        action="store_true",
        help="accept programs although --host is reached from other machines",
    )
    start.add_argument("--tls-cert", metavar="FILE", help="certificate: the dispatcher speaks TLS")
    start.add_argument("--tls-key", metavar="FILE", help="the certificate's key")
    start.add_argument(
        "--timeout",
        type=float,
        default=90.0,
        metavar="S",
        help="how long each process may take to answer (90 s)",
    )
    start.add_argument("--json", action="store_true", help="print JSON: what cluster.json has")
    start.set_defaults(call=_run)


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
    print(f"Ready. Dashboard: {link}   logs: {folder / 'logs'}")
    where = f" --dir {parsed.dir}" if parsed.dir else ""
    print(f"Next: millpond run{where} app.py, millpond list{where}, millpond stop-cluster{where}")
    return 0


def start_cluster(
    parsed: argparse.Namespace, dispatcher: Sequence[str] = DISPATCHER
) -> ClusterRecord:
    """Returns when all of it answers. If something does not, nothing is left running."""
    _check(parsed)
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


def _check(parsed: argparse.Namespace) -> None:
    own_spark = [parsed.workers, parsed.cores, parsed.memory]
    if (parsed.local or parsed.master) and any(own is not None for own in own_spark):
        raise UsageError("--workers, --cores and --memory are for a Spark that is started here")
    if parsed.host in ("0.0.0.0", "::") and not (parsed.local or parsed.master):
        raise UsageError("--host must be one that Spark's workers can call; 0.0.0.0 is none")
    if parsed.local and parsed.master:
        raise UsageError("--local and --master cannot be together")
    for name in ("workers", "cores", "dispatchers"):
        if getattr(parsed, name) is not None and getattr(parsed, name) < 1:
            raise UsageError(f"--{name} must be at least 1")
    if parsed.memory and not re.fullmatch(r"[1-9]\d*[mgMG]", parsed.memory):
        raise UsageError(f"--memory must look like 512m or 2g, not '{parsed.memory}'")
    if bool(parsed.tls_cert) != bool(parsed.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together")
    for file in (parsed.token_file, parsed.tls_cert, parsed.tls_key):
        if file and not os.path.isfile(file):
            raise UsageError(f"there is no file {file}")
    parse_settings(parsed.settings)
    for number in range(parsed.dispatchers if parsed.port else 0):
        if not _is_free(parsed.host, parsed.port + number):
            raise ClusterError(
                f"{parsed.host}:{parsed.port + number} is taken or not this machine's. "
                "Choose another --port; 0 takes any free one."
            )
    if parsed.no_token and parsed.host not in LOOPBACK:
        if not parsed.allow_uploads:
            raise UsageError(
                f"without a token everybody who reaches {parsed.host} could use this cluster; leave "
                "--no-token out, or add --allow-uploads if that is what you want"
            )
        print(
            f"millpond: everybody who reaches {parsed.host} can use this cluster", file=sys.stderr
        )


def _refuse_second(folder: Path) -> None:
    record = read_cluster(folder)
    if record is None:
        return
    if not record.is_here():
        raise ClusterError(
            f"{folder} has a cluster of the machine {record.machine}. Stop it there, or choose another --dir."
        )
    living = [process.title for process in record.living()]
    if living:
        address = next(iter(record.dispatcher_addresses()), "no dispatcher")
        raise ClusterError(
            f"A cluster runs in {folder} already ({address}; alive: {', '.join(living)}). "
            "End it with millpond stop-cluster, or choose another --dir."
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
            f"{host}:{earlier}, where jobs of this cluster look for the Spark master, is taken. Free it, or "
            "choose another --dir."
        )
    return earlier


def _free_port(host: str, first: int) -> int:
    for port in range(first, first + 200):
        if _is_free(host, port):
            return port
    raise ClusterError(f"{host} has no free port from {first} on, or is not this machine's.")


def _is_free(host: str, port: int) -> bool:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError):
        return False
    return True
