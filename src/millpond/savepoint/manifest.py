"""The manifest, which says what a savepoint holds: JSON in `manifest.json`, {"sha256": of the body, "body":
{...}}."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millpond.errors import SavepointError

NAME = "manifest.json"
FORMAT = 1


@dataclass
class FileEntry:
    """A file of the savepoint. `groups` has the key group (or subtask) of each of its row groups."""

    path: str
    bytes: int
    sha256: str
    groups: list[int] = field(default_factory=list)


@dataclass
class StateEntry:
    """A state, or one of the forms in which it is stored. `kind` is as in the change log: value, list, map
    and so on, with "+ttl" if entries have a time to live. `schemas` are those of the file's columns; `types`
    are what the program declared."""

    name: str
    kind: str
    schemas: dict[str, Any]
    types: dict[str, Any]
    rows: int
    keys: int
    biggest: list[tuple[str, int]]  # keys with the most rows
    file: FileEntry


@dataclass
class OperatorEntry:
    """An operator with state. `layout` says how its state is laid out (`plan/identity.py`); it is "" if the
    savepoint was made without a job."""

    uid: str
    name: str
    kind: str
    layout: str
    keyed: bool
    parallelism: int
    max_parallelism: int
    states: list[StateEntry]

    @property
    def rows(self) -> int:
        """How many rows all states have."""
        return sum(state.rows for state in self.states)


@dataclass
class Manifest:
    """The content of `manifest.json`."""

    id: str
    created_ms: int
    version: str  # of Millpond
    job_name: str
    job_id: str
    epoch: int
    parallelism: int
    drained: bool
    operators: list[OperatorEntry]
    sources: list[str]  # uids
    job_file: FileEntry

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder."""
        body = {"format": FORMAT, **asdict(self)}
        text = json.dumps({"sha256": _digest(body), "body": body}, indent=1)
        (folder / NAME).write_text(text)

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Return the manifest of a savepoint. Raises SavepointError if the folder has none, or if it is
        damaged or has another format."""
        path = folder / NAME
        if not folder.is_dir():
            raise SavepointError(f"There is no savepoint folder {folder}.")
        if not path.exists():
            raise SavepointError(
                f"{folder} is not a savepoint: it has no {NAME}. A savepoint's folder is either complete or "
                "not there at all; `millpond savepoint list DIR` lists the savepoints below a folder."
            )
        try:
            whole = json.loads(path.read_text())
            body = whole["body"]
            digest = whole["sha256"]
        except (ValueError, KeyError, TypeError):
            raise SavepointError(f"{path} is damaged: it is not the JSON of a manifest.") from None
        if digest != _digest(body):
            raise SavepointError(f"{path} is damaged: its checksum does not match.")
        format_found = body.pop("format")
        if format_found != FORMAT:
            raise SavepointError(
                f"{path} has format {format_found}, but this release reads format {FORMAT}. Use the release "
                "that wrote it."
            )
        operators = [
            OperatorEntry(
                **{
                    **operator,
                    "states": [
                        StateEntry(
                            **{
                                **state,
                                "biggest": [tuple(entry) for entry in state["biggest"]],
                                "file": FileEntry(**state["file"]),
                            }
                        )
                        for state in operator["states"]
                    ],
                }
            )
            for operator in body.pop("operators")
        ]
        return Manifest(operators=operators, job_file=FileEntry(**body.pop("job_file")), **body)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def describe_file(folder: Path, path: str, groups: list[int] | None = None) -> FileEntry:
    """Return the entry of a file in a savepoint's folder, with its size and checksum."""
    with open(folder / path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(path, (folder / path).stat().st_size, digest, groups or [])


def check_file(folder: Path, entry: FileEntry) -> None:
    """Raise SavepointError if a file is missing, or is not what was written."""
    path = folder / entry.path
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SavepointError(f"The savepoint {folder} names a file outside of it: {entry.path}.")
    if not path.exists():
        raise SavepointError(f"The savepoint {folder} lacks the file {entry.path}.")
    if path.stat().st_size != entry.bytes:
        raise SavepointError(
            f"{path} is damaged: it has {path.stat().st_size} bytes, but {entry.bytes} were written."
        )
    if describe_file(folder, entry.path).sha256 != entry.sha256:
        raise SavepointError(f"{path} is damaged: its checksum does not match.")
