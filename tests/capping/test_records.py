"""Records as they come, good and bad (P7)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from millpond.apps.frequency_capping import records
from millpond.apps.frequency_capping.pipeline import BAD, ReadRecords, dead_letter
from millpond.apps.frequency_capping.records import BadRecord, Messages, RecordFormat
from millpond.apps.frequency_capping.rules import parse_filter
from millpond.common import WatermarkStrategy
from millpond.testing import MarkedSource, direct_environment

NOW = 1_800_000_000_000
GOOD = {"user_no": 42, "da_id": "ad-17", "log_time": 1_700_000_000_000}


@pytest.fixture(params=["orjson", "json"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fast parser, and without it."""
    if request.param == "json":
        monkeypatch.setattr(records, "_loads", records.plain_loads)


def read(record: Any, record_format: RecordFormat | None = None) -> Any:
    data = record if isinstance(record, bytes) else json.dumps(record).encode()
    return (record_format or RecordFormat()).reader().read(data, NOW)


def test_a_record_becomes_a_view() -> None:
    assert read(GOOD) == ("42", None, 1_700_000_000_000, "view", "ad-17", None)
    assert read({**GOOD, "user_no": "ann", "impression_id": 7, "event": "click"}) == (
        *("ann", "7", 1_700_000_000_000, "click", "ad-17"),
        None,
    )


def test_optional_fields_may_be_null() -> None:
    null = {"impression_id": None, "event": None}
    assert read({**GOOD, **null}) == ("42", None, 1_700_000_000_000, "view", "ad-17", None)


def test_other_fields_stay_for_rules() -> None:
    reader = RecordFormat(names={"campaign": "camp"}).reader()
    data = json.dumps({**GOOD, "camp": "c", "color": "red"}).encode()
    arrival = reader.read(data, NOW)
    assert arrival is not None
    fields = reader.fields(arrival[4], arrival[5])
    assert (fields["campaign_id"], fields["color"], fields["da_id"]) == ("c", "red", "ad-17")
    assert reader.fields("ad-17", None) == {"da_id": "ad-17"}


def test_names_can_be_mapped() -> None:
    names = {"user": "uid", "ad": "creative", "time": "at", "impression": "imp", "event": "kind"}
    record = {"uid": 1, "creative": "x", "at": 5, "imp": "i", "kind": "click"}
    assert read(record, RecordFormat(names)) == ("1", "i", 5, "click", "x", None)


def test_common_filter_leaves_others_out() -> None:
    only = RecordFormat(only=parse_filter({"country": ["DE", 7]}, "filter"))
    assert read({**GOOD, "country": "DE"}, only) is not None
    assert read({**GOOD, "country": 7}, only) is not None
    assert read({**GOOD, "country": "FR"}, only) is None
    assert read(GOOD, only) is None


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"{broken", "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (b"[" * 100_000, "not JSON"),
        (json.dumps(GOOD).encode("utf-16"), "not UTF-8"),
        (b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), "not JSON"),
        (json.dumps({**GOOD, "da_id": "\ud800"}).encode(), "not JSON"),
        (json.dumps({**GOOD, "x": "\udc00\ud800"}).encode(), "not JSON"),
        (json.dumps({**GOOD, "x": float("nan")}).encode(), "not JSON"),
        ({**GOOD, "user_no": 1 << 64}, "user is neither text nor integer"),
        ({**GOOD, "log_time": int("9" * 30)}, "time is not an integer"),
        ({}, "no user"),
        ({**GOOD, "user_no": None}, "no user"),
        ({**GOOD, "user_no": ""}, "no user"),
        ({**GOOD, "user_no": True}, "user is neither text nor integer"),
        ({**GOOD, "user_no": 1.5}, "user is neither text nor integer"),
        ({**GOOD, "user_no": [1]}, "user is neither text nor integer"),
        ({**GOOD, "da_id": None}, "no ad"),
        ({**GOOD, "da_id": 17}, "ad is not text"),
        ({"user_no": 1, "da_id": "x"}, "no time"),
        ({**GOOD, "log_time": "1700000000000"}, "time is not an integer"),
        ({**GOOD, "log_time": 1.7e12}, "time is not an integer"),
        ({**GOOD, "log_time": -5}, "time is out of range"),
        ({**GOOD, "log_time": 0}, "time is out of range"),
        ({**GOOD, "log_time": 99_999_999_999_999}, "time is out of range"),
        ({**GOOD, "log_time": NOW + 86_400_001}, "time is out of range"),
        ({**GOOD, "impression_id": {}}, "impression is neither text nor integer"),
        ({**GOOD, "event": 5}, "event is not text"),
    ],
)
def test_what_is_no_view_is_told_why(record: Any, reason: str) -> None:
    with pytest.raises(BadRecord, match=f"^{reason}$"):
        read(record)


def test_characters_beyond_two_bytes_are_read() -> None:
    for data in (
        json.dumps({**GOOD, "da_id": "\N{OWL}"}),
        '{"user_no":1,"log_time":5,"da_id":"\N{OWL}"}',
    ):
        assert read(data.encode())[4] == "\N{OWL}"


def test_a_record_of_a_megabyte_is_read() -> None:
    arrival = read({**GOOD, "filler": "x" * 1_000_000})
    assert len(arrival[5]) > 1_000_000


@pytest.mark.parametrize("data", [b'{"a": "' + b"x" * 1_000_000, b"\\xff\xff{", b"\\xff\0"])
def test_nothing_of_a_bad_record_is_lost(data: bytes) -> None:
    letter = json.loads(dead_letter(("a reason", data)))
    assert letter["reason"] == "a reason"
    found = base64.b64decode(letter["base64"]) if "base64" in letter else letter["record"].encode()
    assert found == data


def bad_ones(given: list[tuple[bytes, int | None]]) -> list[str]:
    """The reasons why records are put aside; with the time at which they were sent, or without."""
    environment = direct_environment()
    source = MarkedSource(given, with_timestamps=True)
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "records")
    read = stream.process(ReadRecords(RecordFormat()))
    return list(read.get_side_output(BAD).map(lambda bad: bad[0]).execute_and_collect())


def test_empty_message_is_bad_and_an_empty_line_is_nothing() -> None:
    """P7: nothing that was sent is lost silently."""
    assert Messages().deserialize(None) == b""
    empty = [b"", b" \n"]
    assert bad_ones([(own, None) for own in empty]) == []
    assert bad_ones([(own, 5) for own in empty]) == ["empty", "empty"]


def test_time_far_ahead_is_compared_with_when_the_message_was_sent() -> None:
    """P2: a record that was bad is bad whenever it is read again."""
    sent_ms = 1_700_000_000_000
    days = [{**GOOD, "log_time": sent_ms + ahead * 86_400_000} for ahead in (0, 1, 2)]
    given = [json.dumps(own).encode() for own in days]
    assert bad_ones([(own, sent_ms) for own in given]) == ["time is out of range"]
    for unknown in (None, -1):
        assert bad_ones([(own, unknown) for own in given]) == [], "long ago by the clock"
