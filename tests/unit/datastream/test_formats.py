"""Records as JSON, CSV and Avro bytes, and back, with PyFlink's names (E9)."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import cloudpickle
import pytest

from millpond.common import Row, Types
from millpond.common.serialization import RowFieldExtractorSchema
from millpond.datastream.formats import json as json_format
from millpond.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from millpond.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millpond.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millpond.errors import ProgramError, TypeMismatchError, UnsupportedFeatureError

TYPE = Types.ROW_NAMED(
    ["id", "name", "price", "tags", "when", "inner"],
    [
        Types.LONG(),
        Types.STRING(),
        Types.BIG_DEC(),
        Types.LIST(Types.STRING()),
        Types.SQL_TIMESTAMP(),
        Types.ROW_NAMED(["ok"], [Types.BOOLEAN()]),
    ],
)
ROW = Row(
    id=7,
    name="ä",
    price=decimal.Decimal("12.340000000000000000001"),
    tags=["a", "b"],
    when=datetime.datetime(2024, 1, 2, 3, 4, 5, 600000),
    inner=Row(ok=True),
)
TEXT = (
    '{"id":7,"name":"ä","price":12.340000000000000000001,"tags":["a","b"],'
    '"when":"2024-01-02T03:04:05.600000Z","inner":{"ok":true}}'
)


@pytest.fixture(params=["orjson", "json"])
def either_json(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Without orjson it is slower, and nothing else."""
    if request.param == "json":
        monkeypatch.setattr(json_format, "_orjson", None)
    return str(request.param)


def reader(type_info: Any, **settings: bool) -> JsonRowDeserializationSchema:
    builder = JsonRowDeserializationSchema.builder().type_info(type_info)
    for name in settings:
        builder = getattr(builder, name)()
    return builder.build()


@pytest.mark.usefixtures("either_json")
def test_json_goes_there_and_back() -> None:
    writer = JsonRowSerializationSchema.builder().with_type_info(TYPE).build()
    assert writer.serialize(ROW).decode() == TEXT
    assert reader(TYPE).deserialize(TEXT.encode()) == ROW
    copied = cloudpickle.loads(cloudpickle.dumps((writer, reader(TYPE))))
    assert copied[1].deserialize_many(copied[0].serialize_many([ROW, ROW])) == [ROW, ROW]


@pytest.mark.usefixtures("either_json")
def test_json_takes_tuples_and_dictionaries_and_named_rows_in_any_order() -> None:
    pair = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    writer = JsonRowSerializationSchema.builder().with_type_info(pair).build()
    values = [(1, "x"), {"b": "x", "a": 1}, Row(b="x", a=1), Row(1, "x"), [1, "x"]]
    assert set(writer.serialize_many(values)) == {b'{"a":1,"b":"x"}'}
    assert writer.serialize((None, None)) == b'{"a":null,"b":null}'


@pytest.mark.usefixtures("either_json")
def test_json_fields_are_read_as_their_types_say() -> None:
    """As Flink: numbers may be text and text may be numbers."""
    kinds = Types.ROW_NAMED(["a", "b", "c"], [Types.INT(), Types.STRING(), Types.DOUBLE()])
    assert reader(kinds).deserialize(b'{"a":"5","b":6,"c":1,"more":[]}') == Row(a=5, b="6", c=1.0)
    assert reader(kinds).deserialize(b'{"a":null}') == Row(a=None, b=None, c=None)


@pytest.mark.usefixtures("either_json")
@pytest.mark.parametrize(
    "bad", [b"{", b'{"id": "x"}', b"[1]", b"\xff\xfe", b"", b'{"tags": 5}', b'"\\ud800"']
)
def test_bad_json_is_an_error_or_left_out(bad: bytes) -> None:
    with pytest.raises((ValueError, TypeMismatchError)):
        reader(TYPE).deserialize(bad)
    lenient = reader(TYPE, ignore_parse_errors=True)
    assert lenient.deserialize_many([bad, b'{"id":1}'])[0] is None
    assert lenient.deserialize_many([bad, b'{"id":1}'])[1].id == 1


def test_missing_field_fails_if_told_so() -> None:
    with pytest.raises(ValueError, match="lacks the field 'b'"):
        reader(
            Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()]), fail_on_missing_field=True
        ).deserialize(b'{"a":1}')


def test_json_schema_gives_the_type() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "s": {"type": ["string", "null"]},
            "d": {"type": "string", "format": "date"},
            "l": {"type": "array", "items": {"type": "boolean"}},
            "o": {"type": "object", "properties": {"k": {"type": "string"}}},
        },
    }
    built = JsonRowDeserializationSchema.builder().json_schema(json.dumps(schema)).build()
    found = built.deserialize(
        b'{"n":12345678901234567890123,"x":0.1,"s":"t","d":"2024-02-03","l":[true],"o":{"k":"v"}}'
    )
    assert found == Row(
        n=12345678901234567890123,
        x=decimal.Decimal("0.1"),
        s="t",
        d=datetime.date(2024, 2, 3),
        l=[True],
        o=Row(k="v"),
    )
    with pytest.raises(ProgramError, match=r"JSON schema.*'q'"):
        JsonRowDeserializationSchema.builder().json_schema('{"type":"q"}')


def test_json_schema_without_a_type_is_refused() -> None:
    with pytest.raises(ProgramError, match="type_info"):
        JsonRowDeserializationSchema.builder().build()
    with pytest.raises(ProgramError, match=r"Types\.ROW"):
        reader(Types.STRING())


# --- CSV ---------------------------------------------------------------------------------------------

CSV = Types.ROW([Types.INT(), Types.STRING(), Types.BOOLEAN(), Types.LIST(Types.LONG())])


def test_csv_goes_there_and_back() -> None:
    rows = [
        Row(1, 'he said "a,b"', True, [1, 2]),
        Row(None, "", None, []),
        Row(-3, "ü\nv", False, [4]),
    ]
    writer = CsvRowSerializationSchema.Builder(CSV).build()
    lines = writer.serialize_many(rows)
    assert lines[0] == b'1,"he said ""a,b""",true,1;2\n'
    assert [writer.serialize(row) for row in rows] == lines
    read = CsvRowDeserializationSchema.Builder(CSV).build()
    found = cloudpickle.loads(cloudpickle.dumps(read)).deserialize_many(lines)
    assert [tuple(row) for row in found] == [tuple(row) for row in rows]
    assert found[0].get_fields_by_names(["f0"]) == [1]


def test_csv_settings() -> None:
    pair = Types.ROW([Types.STRING(), Types.INT()])
    writer = (
        CsvRowSerializationSchema.Builder(pair)
        .set_field_delimiter("|")
        .set_line_delimiter("")
        .set_null_literal("n/a")
        .set_quote_character("'")
        .build()
    )
    assert writer.serialize_many([("a|b", 1), (None, None)]) == [b"'a|b'|1", b"n/a|n/a"]
    read = (
        CsvRowDeserializationSchema.Builder(pair)
        .set_field_delimiter("|")
        .set_null_literal("n/a")
        .set_quote_character("'")
        .set_allow_comments(True)
        .build()
    )
    assert list(map(tuple, read.deserialize_many([b"'a|b'|1", b"n/a|n/a"]))) == [
        ("a|b", 1),
        (None, None),
    ]
    assert read.deserialize(b"# nothing") is None


@pytest.mark.parametrize("bad", [b"x,1", b"1", b"1,2,3", b'"a', b"1,\xff", b'1,"a"b', b""])
def test_bad_csv_is_an_error_or_left_out(bad: bytes) -> None:
    pair = Types.ROW([Types.INT(), Types.STRING()])
    with pytest.raises(ValueError, match=r"."):
        CsvRowDeserializationSchema.Builder(pair).build().deserialize(bad)
    lenient = CsvRowDeserializationSchema.Builder(pair).set_ignore_parse_errors(True).build()
    assert lenient.deserialize_many([bad, b"1,a"])[0] is None
    assert tuple(lenient.deserialize_many([bad, b"1,a"])[1]) == (1, "a")


# --- Avro --------------------------------------------------------------------------------------------

AVRO = """{"type": "record", "name": "R", "fields": [
    {"name": "id", "type": "int"},
    {"name": "name", "type": ["null", "string"], "default": null},
    {"name": "in", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "double"}]}},
    {"name": "all", "type": {"type": "array", "items": "I"}},
    {"name": "by", "type": {"type": "map", "values": "long"}}]}"""


def test_avro_goes_there_and_back() -> None:
    writer = AvroRowSerializationSchema(avro_schema_string=AVRO)
    read = AvroRowDeserializationSchema(avro_schema_string=AVRO)
    inner = Row(x=1.5)
    row = _named(id=1, name="n", inner=inner, all=[inner, Row(x=2.0)], by={"k": 3})
    data = writer.serialize(row)
    assert read.deserialize(data) == row
    assert writer.serialize((1, "n", (1.5,), [(1.5,), {"x": 2.0}], {"k": 3})) == data
    copied = cloudpickle.loads(cloudpickle.dumps((writer, read)))
    assert copied[1].deserialize_many(copied[0].serialize_many([row, row])) == [row, row]


def _named(**values: Any) -> Row:
    """`in` is a word of Python."""
    row = Row(*values.values())
    row.set_field_names([name if name != "inner" else "in" for name in values])
    return row


def test_bad_avro_is_an_error() -> None:
    read = AvroRowDeserializationSchema(avro_schema_string=AVRO)
    with pytest.raises(ValueError, match="not a record of the Avro schema R"):
        read.deserialize(b"\x02")
    writer = AvroRowSerializationSchema(avro_schema_string=AVRO)
    with pytest.raises(ValueError, match="Avro schema R"):
        writer.serialize((1, 5, None, [], {}))
    with pytest.raises(UnsupportedFeatureError, match="avro_schema_string"):
        AvroRowSerializationSchema(record_class="com.example.R")
    with pytest.raises(TypeError):
        AvroRowDeserializationSchema()


def test_field_of_a_row_as_bytes() -> None:
    assert RowFieldExtractorSchema(1).serialize(Row(b"k", b"v")) == b"v"
    with pytest.raises(ValueError, match="must hold bytes"):
        RowFieldExtractorSchema(0).serialize(("k", b"v"))
    with pytest.raises(ValueError, match="must not be negative"):
        RowFieldExtractorSchema(-1)
