"""Reads records: each becomes a view, or there is a reason why it is not one."""

from __future__ import annotations

import base64
import importlib
import json
from dataclasses import dataclass, field
from typing import Any, NoReturn

from millpond.apps.frequency_capping.rules import text_of
from millpond.common.serialization import ByteArraySchema

# A view on its way to its user: user, impression, time, event, ad, and the whole record if it has more
# fields. A plain tuple of plain values goes through the shuffle as it is.
Arrival = tuple[str, str | None, int, str, str, str | None]
FIELDS = {
    "user": "user_no",
    "time": "log_time",
    "impression": "impression_id",
    "event": "event",
    "ad": "da_id",
    "ad_set": "ad_set_id",
    "campaign": "campaign_id",
    "advertiser": "advertiser_id",
}
_LATEST_MS = 4_102_444_800_000  # the year 2100


def plain_loads(data: bytes | str) -> object:
    """Return what JSON says, as strictly as orjson does: UTF-8 without lone surrogates, and no NaN. Raise
    ValueError if it is not such JSON, or RecursionError if it is nested too deeply."""
    text = data.decode() if isinstance(data, bytes) else data
    found = json.loads(text, parse_constant=_refuse, parse_int=_parse_int)
    if "\\u" in text:
        json.dumps(found, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _parse_int(text: str) -> int | float:
    """Return an integer if it fits into 64 bits, else a float."""
    found = int(text) if len(text) < 21 else 1 << 64
    return found if -(1 << 63) <= found < 1 << 64 else float(text)


try:  # the extra `capping` installs it; it is three times as fast
    _loads = importlib.import_module("orjson").loads
except ImportError:
    _loads = plain_loads


def load_json(data: bytes | str) -> object:
    """Return what JSON says. Raise ValueError or RecursionError if it cannot be read."""
    return _loads(data)


class Messages(ByteArraySchema):
    """Reads messages of a topic as bytes; a message without a value is empty."""

    takes_null = True

    def deserialize(self, data: bytes | None) -> bytes:
        return b"" if data is None else data


class BadRecord(Exception):
    """A record that is not a view. The reason is a short text, by which such records are counted."""


@dataclass(frozen=True)
class RecordFormat:
    """What records look like, and which of them are read.

    `names` says what fields are called in the records, if not as in FIELDS. `only` is the common filter.
    `max_ahead_ms` is how far a record's time may be ahead of when it was sent or, if that is unknown, of the
    clock."""

    names: dict[str, str] = field(default_factory=dict)
    only: tuple[tuple[str, frozenset[str]], ...] = ()
    max_ahead_ms: int = 86_400_000

    def name(self, which: str) -> str:
        """Return what a field is called in the records; `which` is a key of FIELDS."""
        return self.names.get(which, FIELDS[which])

    def reader(self) -> RecordReader:
        """Return a new reader of records in this format."""
        return RecordReader(self)


class RecordReader:
    """Reads the records of one subtask; names are looked up only once."""

    def __init__(self, record_format: RecordFormat) -> None:
        name = record_format.name
        self._user, self._time, self._ad = name("user"), name("time"), name("ad")
        self._impression, self._event = name("impression"), name("event")
        self._known = {self._user, self._time, self._ad, self._impression, self._event}
        # Rules refer to fields by the names in FIELDS.
        self._renamed = {
            given: FIELDS[which]
            for which, given in record_format.names.items()
            if given != FIELDS[which]
        }
        self._only = record_format.only
        self._max_ahead_ms = record_format.max_ahead_ms

    def read(self, data: bytes | str, now_ms: int) -> Arrival | None:
        """Return the view in a record; None if the common filter leaves it out. `now_ms` is the time at which
        the record was sent, or the clock. Raise BadRecord if it is not a view."""
        record = _parse(data)
        user, time_ms, ad = record.get(self._user), record.get(self._time), record.get(self._ad)
        if type(user) is int:
            user = str(user)
        elif type(user) is not str or not user:
            raise BadRecord("no user" if user in (None, "") else "user is neither text nor integer")
        if type(time_ms) is not int:
            raise BadRecord("no time" if time_ms is None else "time is not an integer")
        if not 0 < time_ms < _LATEST_MS or time_ms > now_ms + self._max_ahead_ms:
            raise BadRecord("time is out of range")
        if type(ad) is not str or not ad:
            raise BadRecord("no ad" if ad in (None, "") else "ad is not text")
        impression = record.get(self._impression)
        if impression == "":
            impression = None
        elif impression is not None and type(impression) is not str:
            if type(impression) is not int:
                raise BadRecord("impression is neither text nor integer")
            impression = str(impression)
        event = record.get(self._event)
        if event is None:
            event = "view"
        elif type(event) is not str:
            raise BadRecord("event is not text")
        if self._only:
            fields = self._named(record)
            if any(text_of(fields.get(name)) not in values for name, values in self._only):
                return None
        more = None
        if not self._known.issuperset(record):
            more = data if isinstance(data, str) else data.decode()
        return user, impression, time_ms, event, ad, more

    def fields(self, ad: str, more: str | None) -> dict[str, Any]:
        """Return all fields of a view by the names that rules use. `more` is the whole record, or None if it
        has no further fields."""
        return {"da_id": ad} if more is None else self._named(_loads(more))

    def _named(self, record: dict[str, Any]) -> dict[str, Any]:
        if not self._renamed:
            return record
        kept = {name: value for name, value in record.items() if name not in self._renamed}
        return kept | {self._renamed[n]: value for n, value in record.items() if n in self._renamed}


def _parse(data: bytes | str) -> dict[str, Any]:
    try:
        record = _loads(data)
    except (ValueError, RecursionError):
        raise BadRecord(_what_is_wrong(data)) from None
    if type(record) is not dict:
        raise BadRecord("not an object")
    return record


def _what_is_wrong(data: bytes | str) -> str:
    try:
        if isinstance(data, bytes):
            data.decode()
    except UnicodeDecodeError:
        return "not UTF-8"
    return "not JSON"


def shown(data: bytes | str) -> dict[str, str]:
    """Return a whole bad record for a dead letter: `record` is its text; if its bytes are not UTF-8, they are
    also there as `base64`."""
    if isinstance(data, str):
        return {"record": data}
    try:
        return {"record": data.decode()}
    except UnicodeDecodeError:
        text = data.decode("utf-8", "backslashreplace")
        return {"record": text, "base64": base64.b64encode(data).decode()}
