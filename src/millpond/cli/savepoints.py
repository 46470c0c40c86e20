"""`millpond savepoint ...` and `millpond stop`: savepoints of jobs that another process runs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millpond.cli.jobs import find_job, is_running
from millpond.cli.texts import size_text, time_text
from millpond.common import options
from millpond.common.paths import local_folder
from millpond.errors import SavepointError
from millpond.runtime.savepoint_orders import read_answer, request_by_file, withdraw
from millpond.savepoint.manifest import Manifest, OperatorEntry
from millpond.savepoint.reader import SavepointReader
from millpond.state.evolution import type_text
from millpond.state.schemas import is_pickled

_POLL_S = 0.1
_ACTIONS = ("list", "show", "dispose")


def add_commands(commands: Any) -> None:
    savepoint = commands.add_parser(
        "savepoint",
        help="take a savepoint of a running job; list, show, dispose savepoints",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "millpond savepoint JOB [DIR]    take a savepoint of a running job\n"
            "millpond savepoint list DIR     the savepoints in a folder\n"
            "millpond savepoint show PATH    what is in a savepoint\n"
            "millpond savepoint dispose PATH delete a savepoint\n\n"
            "JOB is a job's folder, or its name below the folder for checkpoints."
        ),
    )
    savepoint.add_argument("what", metavar="JOB|list|show|dispose")
    savepoint.add_argument("where", nargs="?", metavar="DIR|PATH")
    savepoint.add_argument("--json", action="store_true", help="print JSON")
    _add_job_options(savepoint)
    stop = commands.add_parser(
        "stop",
        help="end a running job with a savepoint",
        description="Take a savepoint of a running job and end the job with it.",
    )
    stop.add_argument("job", metavar="JOB", help="the job's folder, or its name")
    stop.add_argument(
        "--savepoint",
        nargs="?",
        metavar="DIR",
        help=f"folder for the savepoint; without one: {options.SAVEPOINT_DIR.key}",
    )
    stop.add_argument(
        "--drain", action="store_true", help="fire all timers and close all windows before"
    )
    stop.add_argument("--json", action="store_true", help="print JSON")
    _add_job_options(stop)


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint-dir",
        metavar="DIR",
        help=f"folder for checkpoints, if JOB is a name ({options.CHECKPOINT_DIR.key})",
    )
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="how long to wait (600 s)"
    )


def run_savepoint(parsed: argparse.Namespace) -> int:
    if parsed.what not in _ACTIONS:
        return _take(parsed, parsed.what, parsed.where, stop=False, drain=False)
    if parsed.where is None:
        print(f"millpond: savepoint {parsed.what} needs a folder", file=sys.stderr)
        return 2
    action = {"list": _list, "show": _show, "dispose": _dispose}[parsed.what]
    return action(local_folder(parsed.where, "The folder"), parsed.json)


def run_stop(parsed: argparse.Namespace) -> int:
    return _take(parsed, parsed.job, parsed.savepoint, stop=True, drain=parsed.drain)


# --- running jobs ------------------------------------------------------------------------------------


def _take(
    parsed: argparse.Namespace, job: str, directory: str | None, stop: bool, drain: bool
) -> int:
    folder = find_job(job, parsed.checkpoint_dir)
    if not is_running(folder):
        raise SavepointError(f"The job in {folder} is not running, so it cannot take a savepoint.")
    where = None if directory is None else str(local_folder(directory, "The folder for savepoints"))
    path = _wait_for_savepoint(folder, where, stop, drain, parsed.timeout)
    print(json.dumps({"savepoint": path}) if parsed.json else path)
    return 0


def _wait_for_savepoint(
    folder: Path, directory: str | None, stop: bool, drain: bool, timeout_s: float
) -> str:
    order_id = request_by_file(folder, directory, stop, drain)
    started = time.monotonic()
    progress = sys.stderr.isatty()
    try:
        while (answer := read_answer(folder, order_id)) is None:
            waited = time.monotonic() - started
            if not is_running(folder):
                answer = read_answer(folder, order_id)  # it may have come in between
                if answer is None:
                    raise SavepointError(f"The job in {folder} ended without a savepoint.")
                break
            if waited > timeout_s:
                raise SavepointError(
                    f"No savepoint within {timeout_s:.0f} s; the request is withdrawn."
                )
            if progress:
                print(f"\rwaiting for the savepoint ... {waited:.0f} s", end="", file=sys.stderr)
            time.sleep(_POLL_S)
    finally:
        withdraw(folder, order_id)
        if progress:
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    if "error" in answer:
        raise SavepointError(answer["error"])
    return answer["path"]


# --- savepoints at rest ------------------------------------------------------------------------------


def _list(folder: Path, as_json: bool) -> int:
    if not folder.is_dir():
        raise SavepointError(f"There is no folder {folder}.")
    found = []
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and (path / "manifest.json").exists():
            try:
                found.append(Manifest.read(path))
            except SavepointError as problem:
                print(f"millpond: {problem}", file=sys.stderr)
    found.sort(key=lambda manifest: manifest.created_ms)
    if as_json:
        print(json.dumps([_summary(manifest) for manifest in found], indent=1))
        return 0
    if not found:
        print(f"no savepoints in {folder}")
    for manifest in found:
        when, size = time_text(manifest.created_ms), size_text(_bytes(manifest))
        print(f"{manifest.id}  {when}  {size:>9}  {manifest.job_name}")
    return 0


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "id": manifest.id,
        "created": manifest.created_ms,
        "job": manifest.job_name,
        "bytes": _bytes(manifest),
    }


def _show(path: Path, as_json: bool) -> int:
    reader = SavepointReader(path)
    reader.check()
    manifest = reader.manifest
    if as_json:
        print(json.dumps(asdict(manifest), indent=1))
        return 0
    print(f"savepoint    {path}")
    print(f"job          {manifest.job_name} ({manifest.job_id}), batch {manifest.epoch}")
    print(f"written      {time_text(manifest.created_ms)} by Millpond {manifest.version}")
    print(f"size         {size_text(_bytes(manifest))}, all checksums match")
    print(f"parallelism  {manifest.parallelism}{', drained' if manifest.drained else ''}")
    print(f"sources      {', '.join(manifest.sources)}")
    for operator in manifest.operators:
        _show_operator(operator)
    return 0


def _show_operator(operator: OperatorEntry) -> None:
    print(f"\noperator '{operator.name}'  uid {operator.uid}")
    print(f"  {operator.layout}, max parallelism {operator.max_parallelism}")
    for state in operator.states:
        types = ", ".join(
            f"{column} {type_text(schema)}" for column, schema in state.schemas.items()
        )
        print(f"  {state.name}  ({state.kind}: {types})")
        print(f"    {state.keys:,} keys, {state.rows:,} entries, {size_text(state.file.bytes)}")
        pickled = [column for column, schema in state.schemas.items() if is_pickled(schema)]
        if pickled:
            print(f"    has Python pickles ({', '.join(pickled)}): only Python can read them")
        if state.biggest:
            biggest = ", ".join(f"{key} {count:,}" for key, count in state.biggest)
            print(f"    biggest keys: {biggest}")


def _dispose(path: Path, as_json: bool) -> int:
    path = path.resolve()
    Manifest.read(path)  # nothing else is ever deleted
    aside = path.with_name(f".{path.name}.disposed")
    os.rename(path, aside)  # gone at once; what a crash leaves is not taken for a savepoint
    shutil.rmtree(aside)
    print(json.dumps({"disposed": str(path)}) if as_json else f"disposed {path}")
    return 0


def _bytes(manifest: Manifest) -> int:
    files = [state.file.bytes for own in manifest.operators for state in own.states]
    return sum(files) + manifest.job_file.bytes
