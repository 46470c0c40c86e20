"""`millpond savepoint list|show|dispose`: savepoints at rest, in folders of this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from millpond.cli.texts import size_text, time_text
from millpond.errors import SavepointError
from millpond.savepoint.disposal import dispose
from millpond.savepoint.manifest import Manifest, OperatorEntry
from millpond.savepoint.reader import SavepointReader
from millpond.state.types.evolution import type_text
from millpond.state.types.schemas import is_pickled


def list_savepoints(folder: Path, as_json: bool) -> int:
    """Print the savepoints in a folder, the oldest first, and return the exit code. Savepoints that cannot be
    read are reported on standard error."""
    if not folder.is_dir():
        raise SavepointError(f"There is no folder {folder}.")
    manifests = []
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and (path / "manifest.json").exists():
            try:
                manifests.append(Manifest.read(path))
            except SavepointError as problem:
                print(f"millpond: {problem}", file=sys.stderr)
    manifests.sort(key=lambda manifest: manifest.created_ms)
    if as_json:
        print(json.dumps([_summary(manifest) for manifest in manifests], indent=1))
        return 0
    if not manifests:
        print(f"no savepoints in {folder}")
    for manifest in manifests:
        when, size = time_text(manifest.created_ms), size_text(_bytes(manifest))
        print(f"{manifest.id}  {when}  {size:>9}  {manifest.job_name}")
    return 0


def _summary(manifest: Manifest) -> dict[str, object]:
    return {
        "id": manifest.id,
        "created": manifest.created_ms,
        "job": manifest.job_name,
        "bytes": _bytes(manifest),
    }


def show_savepoint(path: Path, as_json: bool) -> int:
    """Check all files of a savepoint, print what it contains, and return the exit code. Raise SavepointError
    if it is incomplete or damaged."""
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
            print(f"    contains Python pickles ({', '.join(pickled)}): only Python can read them")
        if state.biggest:
            biggest = ", ".join(f"{key} {count:,}" for key, count in state.biggest)
            print(f"    biggest keys: {biggest}")


def dispose_savepoint(path: Path, as_json: bool) -> int:
    """Delete a savepoint and return the exit code."""
    dispose(path)
    print(json.dumps({"disposed": str(path)}) if as_json else f"disposed {path}")
    return 0


def _bytes(manifest: Manifest) -> int:
    files = [state.file.bytes for operator in manifest.operators for state in operator.states]
    return sum(files) + manifest.job_file.bytes
