"""What frequency capping is to do, as plainly as possible: all views in a list, counted anew at every moment.

Nothing of the app is used but the meaning of its words.
"""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any

NEVER = 1 << 62
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FIELDS = {
    "ad": "da_id",
    "ad_set": "ad_set_id",
    "campaign": "campaign_id",
    "advertiser": "advertiser_id",
}


def duration(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]]


def counts_until(time_ms: int, window: Any) -> int:
    if window == "lifetime":
        return NEVER
    if isinstance(window, str):
        return time_ms + duration(window)
    zone = zoneinfo.ZoneInfo(window.get("time_zone", "UTC"))
    day = datetime.datetime.fromtimestamp(time_ms / 1000, zone).date()
    if window["calendar"] == "day":
        end = day + datetime.timedelta(days=1)
    else:
        end = day + datetime.timedelta(days=7 - day.weekday())
    return int(datetime.datetime.combine(end, datetime.time(), zone).timestamp() * 1000)


def matches(record: dict[str, Any], rule: dict[str, Any]) -> bool:
    if record.get("event", "view") != rule.get("event", "view"):
        return False
    for name, wanted in rule.get("where", {}).items():
        values = wanted if isinstance(wanted, list) else [wanted]
        if record.get(name) not in values:
            return False
    return record.get(_FIELDS.get(rule["level"], rule["level"])) is not None


def remembered(rules: list[dict[str, Any]]) -> int:
    """How long an impression is known: as long as any view can count, but no more than 30 days."""
    lengths = []
    for window in (rule["window"] for rule in rules):
        if isinstance(window, str):
            lengths.append(NEVER if window == "lifetime" else duration(window))
        else:
            lengths.append(_UNITS["h"] + _UNITS["d"] * (1 if window["calendar"] == "day" else 7))
    return min(max(lengths), 30 * _UNITS["d"])


def without_duplicates(
    records: list[dict[str, Any]], rules: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    seen: dict[tuple[str, str, Any], int] = {}
    kept = []
    for record in records:
        event, time = record.get("event", "view"), record["log_time"]
        name = (str(record["user_no"]), event, record.get("impression_id"))
        if name[2] is not None and name in seen and abs(time - seen[name]) < remembered(rules):
            continue
        kept.append(record)
        seen[name] = time
    return kept


def timeline(
    records: list[dict[str, Any]], rule: dict[str, Any]
) -> dict[tuple[str, str], list[tuple[int, bool]]]:
    """(user, member) -> when the rule caps it (True) and releases it (False), in order."""
    views: dict[tuple[str, str], list[int]] = {}
    for record in records:
        if matches(record, rule):
            found = record[_FIELDS.get(rule["level"], rule["level"])]
            place = (str(record["user_no"]), f"{rule['level']}:{found}")
            views.setdefault(place, []).append(record["log_time"])
    return {place: _changes(times, rule) for place, times in views.items()}


def _changes(times: list[int], rule: dict[str, Any]) -> list[tuple[int, bool]]:
    window, limit = rule["window"], rule["limit"]
    cool_down = duration(rule["cool_down"]) if rule.get("cool_down") else 0
    moments = {t for time in times for t in (time, counts_until(time, window))} - {NEVER}
    changes: list[tuple[int, bool]] = []
    since: int | None = None
    while moments:
        now = min(moments)
        moments.remove(now)
        count = sum(time <= now < counts_until(time, window) for time in times)
        if since is None and count >= limit:
            since = now
            changes.append((now, True))
            moments.add(since + cool_down)
            moments.discard(now)
        elif since is not None and count < limit and now >= since + cool_down:
            since = None
            changes.append((now, False))
    return changes


def capped_at(
    records: list[dict[str, Any]], rules: list[dict[str, Any]], now: int
) -> dict[str, set[str]]:
    """User -> members that any rule caps at event time `now`; users without any are left out."""
    found: dict[str, set[str]] = {}
    records = without_duplicates(records, rules)
    for rule in rules:
        if rule.get("enabled", True):
            for (user, member), changes in timeline(records, rule).items():
                done = [capped for time, capped in changes if time <= now]
                if done and done[-1]:
                    found.setdefault(user, set()).add(member)
    return found


def interesting_times(records: list[dict[str, Any]], rules: list[dict[str, Any]]) -> list[int]:
    """Every moment at which something may change, and those around it."""
    moments: set[int] = set()
    records = without_duplicates(records, rules)
    for rule in rules:
        for changes in timeline(records, rule).values():
            moments.update(time for time, _ in changes)
        moments.update(counts_until(record["log_time"], rule["window"]) for record in records)
    moments.update(record["log_time"] for record in records)
    return sorted({m + d for m in moments if m < NEVER for d in (-1, 0, 1)})
