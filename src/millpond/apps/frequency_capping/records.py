"""Records as they come, and what is left of them: a view, or the reason why it is none."""

from __future__ import annotations

import base64
import importlib
import json
from dataclasses import dataclass, field
from typing import Any

from millpond.apps.frequency_capping.rules import text_of
from millpond.common.serialization import ByteArraySchema

# A view on its way: user, impression, time, event, ad, and the whole record if it has more fields. A plain
# tuple of plain values goes through the shuffle as it is.
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


def plain_loads(data: bytes | str) -> Any:
    """JSON as orjson understands it: UTF-8 without halves of characters, and no NaN. Raises ValueError."""
    text = data.decode() if isinstance(data, bytes) else data
    found = json.loads(text, parse_constant=_refuse, parse_int=_parse_int)
    if "\\u" in text:
        json.dumps(found, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _parse_int(text: str) -> int | float:
    """Of 64 bits."""
    found = int(text) if len(text) < 21 else 1 << 64
    return found if -(1 << 63) <= found < 1 << 64 else float(text)


try:  # it is there with the extra `capping`, and three times as fast
    _loads = importlib.import_module("orjson").loads
except ImportError:
    _loads = plain_loads


def load_json(data: bytes | str) -> Any:
    """Raises ValueError, or RecursionError."""
    return _loads(data)


class Messages(ByteArraySchema):
    """Messages of a topic as they are. One without a value is an empty one."""

    takes_null = True

    def deserialize(self, data: bytes | None) -> bytes:
        return b"" if data is None else data


class BadRecord(Exception):
    """Not a view; the reason is a short text that is counted."""


@dataclass(frozen=True)
class RecordFormat:
    """`names`: what fields are called in the records, if not as in FIELDS. `only`: the common filter.
    `max_ahead_ms`: how far a record's time may be ahead of when it was sent, or else of the clock."""

    names: dict[str, str] = field(default_factory=dict)
    only: tuple[tuple[str, frozenset[str]], ...] = ()
    max_ahead_ms: int = 86_400_000

    def name(self, which: str) -> str:
        return self.names.get(which, FIELDS[which])

    def reader(self) -> RecordReader:
        return RecordReader(self)


class RecordReader:
    """Of one subtask: the names are looked up once."""

    def __init__(self, record_format: RecordFormat) -> None:
        name = record_format.name
        self._user, self._time, self._ad = name("user"), name("time"), name("ad")
        self._impression, self._event = name("impression"), name("event")
        self._known = {self._user, self._time, self._ad, self._impression, self._event}
        # Rules speak of fields by their own names.
        self._renamed = {
            given: FIELDS[which]
            for which, given in record_format.names.items()
            if given != FIELDS[which]
        }
        self._only = record_format.only
        self._max_ahead_ms = record_format.max_ahead_ms

    def read(self, data: bytes | str, now_ms: int) -> Arrival | None:
        """None if the common filter leaves it out. Raises BadRecord."""
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
        """All fields of a view, by the names that rules use."""
        return {"da_id": ad} if more is None else self._named(_loads(more))

    def _named(self, record: dict[str, Any]) -> dict[str, Any]:
        if not self._renamed:
            return record
        own = {name: value for name, value in record.items() if name not in self._renamed}
        return own | {self._renamed[n]: value for n, value in record.items() if n in self._renamed}


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
    """A bad record, whole, for a dead letter: `record` is text; bytes that are none are also there as they
    were, as `base64`."""
    if isinstance(data, str):
        return {"record": data}
    try:
        return {"record": data.decode()}
    except UnicodeDecodeError:
        text = data.decode("utf-8", "backslashreplace")
        return {"record": text, "base64": base64.b64encode(data).decode()}
