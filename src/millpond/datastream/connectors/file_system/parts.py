"""The driver's part of a file sink: which pieces wait, and how they become part files.

A piece is a hidden file: what a subtask has written in an epoch. Consecutive pieces of a subtask are joined
into a part file, which gets its final name at once and never changes. What waits and what is being renamed is
recorded in a file in the output folder, which is written aside and renamed:

    .OWNER.parts    {"format": 1, "epoch": the newest one included,
                     "pieces": [[name, epoch, subtask, number, bytes], ...],
                     "renames": [[hidden name, final name], ...], "removals": [name, ...]}

An epoch is taken in by the same write that says what becomes of its pieces; renames are done after that, and
repeated after a crash. A file that no longer exists has been renamed, and its reader may have moved it since.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from millpond.common.folder_sync import sync_folder
from millpond.datastream.connectors.file_system.rolling import DefaultRollingPolicy, RollingPolicy
from millpond.errors import CorruptDataError

UNFINISHED = ".inprogress"
Join = Callable[[list[Path], Path], None]  # pieces, and the file to make of them


class Piece(NamedTuple):
    """What a subtask has written in an epoch, or a part of it."""

    name: str
    epoch: int
    subtask: int
    number: int  # within epoch and subtask
    size: int


class PartFiles:
    """The part files of one sink of one job. `owner` is unique within the folder."""

    def __init__(
        self,
        folder: Path,
        owner: str,
        policy: RollingPolicy,
        join: Join,
        final_name: Callable[[Piece], str],
    ) -> None:
        self._folder = folder
        self._owner = owner
        self._policy = policy
        self._join = join
        self._final_name = final_name
        self._path = folder / f".{owner}.parts"
        self._epoch = -1
        self._pieces: list[Piece] = []
        self._renames: list[tuple[str, str]] = []
        self._removals: list[str] = []
        # By subtask: when its first and its newest waiting piece came; a new process starts over.
        self._since_ms: dict[int, tuple[int, int]] = {}
        self._load()

    # --- what the sink calls ---------------------------------------------------------------------

    def add(self, epoch: int, pieces: list[Piece]) -> None:
        """Take in the pieces of an epoch. Doing it again changes nothing."""
        if epoch > self._epoch and self._are_there(pieces):
            self._epoch = epoch
            self._pieces += sorted(pieces, key=lambda piece: (piece.subtask, piece.number))
            for piece in pieces:
                first, _ = self._since_ms.get(piece.subtask, (-1, -1))
                self._since_ms[piece.subtask] = (first, -1)
            self._write(self._close_full())
        self.clean_up(f"{self._owner}-{epoch}-")

    def roll(self, now_ms: int) -> int | None:
        """Close the parts that are due by age or inactivity; return in how many milliseconds the next one
        may be, or None."""
        if not isinstance(self._policy, DefaultRollingPolicy):
            return None
        due: list[list[Piece]] = []
        waits: list[int] = []
        for subtask, pieces in self._by_subtask():
            first, newest = self._since_ms.get(subtask, (-1, -1))
            first, newest = (now_ms if at < 0 else at for at in (first, newest))
            self._since_ms[subtask] = (first, newest)
            left_ms = min(
                first + self._policy.rollover_interval_ms - now_ms,
                newest + self._policy.inactivity_interval_ms - now_ms,
            )
            if left_ms <= 0:
                due.append(pieces)
            else:
                waits.append(left_ms)
        if due:
            self._write(due)
        return min(waits, default=None)

    def finish(self) -> None:
        """Close all parts, so that nothing hidden is left."""
        if self._pieces:
            self._write([pieces for _, pieces in self._by_subtask()])
        self._path.unlink(missing_ok=True)
        self._epoch = -1 if not self._pieces else self._epoch

    def clean_up(self, prefix: str) -> None:
        """Remove the hidden files that begin with `prefix` and were never committed."""
        known = {piece.name for piece in self._pieces}
        for leftover in self._folder.glob(f".{prefix}*{UNFINISHED}"):
            if leftover.name not in known:
                leftover.unlink(missing_ok=True)

    # --- parts -----------------------------------------------------------------------------------

    def _by_subtask(self) -> Iterator[tuple[int, list[Piece]]]:
        by_subtask: dict[int, list[Piece]] = {}
        for piece in self._pieces:
            by_subtask.setdefault(piece.subtask, []).append(piece)
        return iter(by_subtask.items())

    def _close_full(self) -> list[list[Piece]]:
        """Return the parts to which the next piece cannot be added."""
        closed: list[list[Piece]] = []
        for _, pieces in self._by_subtask():
            if isinstance(self._policy, DefaultRollingPolicy):
                closed += full_parts(pieces, self._policy.part_size)
            else:
                closed += [[piece] for piece in pieces]
        return closed

    def _write(self, closed: list[list[Piece]]) -> None:
        """Close parts.

        Steps: 1. join the pieces of closed parts aside, 2. record what waits and what is to be renamed, 3.
        rename, 4. remove the pieces that were joined.
        """
        renames: list[tuple[str, str]] = []
        removals: list[str] = []
        for part in closed:
            name = part[0].name
            if len(part) > 1:
                name = f".{self._owner}-{part[0].epoch}-joined-{uuid.uuid4().hex}{UNFINISHED}"
                self._join([self._folder / piece.name for piece in part], self._folder / name)
                removals += [piece.name for piece in part]
            renames.append((name, self._final_name(part[0])))
        gone = {piece for part in closed for piece in part}
        self._pieces = [piece for piece in self._pieces if piece not in gone]
        waiting = {piece.subtask for piece in self._pieces}
        for subtask in {part[0].subtask for part in closed}:
            _, newest = self._since_ms.pop(subtask, (-1, -1))
            if subtask in waiting:  # what is left has just come
                self._since_ms[subtask] = (newest, newest)
        self._renames, self._removals = renames, removals
        self._save()
        self._carry_out()

    def _carry_out(self) -> None:
        for hidden, final in self._renames:
            if (self._folder / hidden).exists():  # otherwise it was renamed before a crash
                os.replace(self._folder / hidden, self._folder / final)
        if self._renames:
            sync_folder(self._folder)  # the new names must survive a power failure too
        for name in self._removals:
            (self._folder / name).unlink(missing_ok=True)

    def _are_there(self, pieces: list[Piece]) -> bool:
        """Return False if all pieces are gone: the job ended with this epoch, and its driver died before
        it could know."""
        missing = [piece.name for piece in pieces if not (self._folder / piece.name).exists()]
        if missing and len(missing) < len(pieces):
            raise FileNotFoundError(
                f"The file {self._folder / missing[0]} of the file sink was removed before it was committed."
            )
        return not missing

    # --- the file --------------------------------------------------------------------------------

    def _load(self) -> None:
        try:
            content = json.loads(self._path.read_text())
            assert content["format"] == 1
        except FileNotFoundError:
            return
        except (ValueError, KeyError, AssertionError):
            raise CorruptDataError(
                f"{self._path} is damaged, or was written by a newer version. It lists the hidden files that "
                "belong to the output: restore it from a backup, or use an empty output folder."
            ) from None
        self._epoch = content["epoch"]
        self._pieces = [Piece(*fields) for fields in content["pieces"]]
        self._renames = [(hidden, final) for hidden, final in content["renames"]]
        self._removals = content["removals"]
        self._carry_out()

    def _save(self) -> None:
        content: dict[str, Any] = {
            "format": 1,
            "epoch": self._epoch,
            "pieces": self._pieces,
            "renames": self._renames,
            "removals": self._removals,
        }
        aside = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}{UNFINISHED}")
        with aside.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self._path)
        sync_folder(self._folder)


def full_parts(pieces: list[Piece], part_size: int) -> list[list[Piece]]:
    """Group consecutive pieces into parts, as many as fit; the last pieces may have to wait.

    No part is larger than `part_size` unless it is a single piece, and two neighbouring parts together always
    are.
    """
    closed: list[list[Piece]] = []
    current: list[Piece] = []
    size = 0
    for piece in pieces:
        if current and size + piece.size > part_size:
            closed.append(current)
            current, size = [], 0
        current.append(piece)
        size += piece.size
    if size >= part_size:
        closed.append(current)
    return closed
