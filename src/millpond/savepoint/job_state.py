"""What a savepoint has of the job as a whole, by uid: positions of sources, watermarks, clocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# What `JobState.by_uid` gives for a job that never ran.
EMPTY_JOB_STATE: dict[str, Any] = {"sources": {}, "channels": {}, "clocks": {}, "time_ms": 0}


@dataclass(frozen=True)
class UidChanges:
    """Changes of uids, one after the other: operators and sources that got another one, or are gone
    (None)."""

    changes: tuple[tuple[str, str | None], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def then(self, uid: str, new: str | None) -> UidChanges:
        """Return these changes with one more."""
        return UidChanges((*self.changes, (uid, new)))

    def applied(self, uids: Iterable[str]) -> list[str]:
        """Return the uids after the changes, without those that are gone."""
        return list(self._by_new_uid(dict.fromkeys(uids)))

    def in_job_state(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return what `JobState.by_uid` gave, after the changes."""
        changed = {
            name: self._by_new_uid(content[name]) for name in ("sources", "channels", "clocks")
        }
        changed["sources"] = {
            uid: {
                **source,
                "saved": {
                    s: self._by_new_uid(positions) for s, positions in source["saved"].items()
                },
            }
            for uid, source in changed["sources"].items()
        }
        return {**content, **changed}

    def _by_new_uid(self, by_uid: dict[str, Any]) -> dict[str, Any]:
        for old, new in self.changes:
            by_uid = {
                new if uid == old and new is not None else uid: value
                for uid, value in by_uid.items()
                if uid != old or new is not None
            }
        return by_uid
