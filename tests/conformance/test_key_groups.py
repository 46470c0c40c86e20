"""C1-C4: keys to key groups to subtasks."""

from __future__ import annotations

import datetime
import decimal
import http
import pickle
import struct
import subprocess
import sys
import uuid
from typing import Any

import pytest

from millpond.common import Row
from millpond.core.key_groups import (
    default_max_parallelism,
    key_group_of,
    key_group_range,
    key_groups_of,
    murmur_mix,
    stable_hash,
    subtask_of,
)
from millpond.errors import ProgramError


def java_string_hash(text: str) -> int:
    code = 0
    units = text.encode("utf-16-be")
    for (unit,) in struct.iter_unpack(">H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code


def java_long_hash(number: int) -> int:
    bits = number & 0xFFFFFFFFFFFFFFFF
    return (bits ^ (bits >> 32)) & 0xFFFFFFFF


def java_double_hash(number: float) -> int:
    (bits,) = struct.unpack(">q", struct.pack(">d", number))
    return java_long_hash(bits)


@pytest.mark.parametrize(
    ("code", "key_group"),
    [(0, 94), (1, 86), (2, 127), (3, 113), (4, 7), (42, 29), (-1, 80)]
    + [(2**31 - 1, 62), (-(2**31), 108)]
    + [
        (java_string_hash(text), key_group)
        for text, key_group in {
            "": 94,
            "a": 81,
            "b": 22,
            "hello": 35,
            "flink": 98,
            "key-0": 31,
            "key-1": 54,
            "user-42": 20,
            "é": 30,
            "😀": 54,
        }.items()
    ]
    + [(java_long_hash(-1), 94), (java_long_hash(2**32), 86), (java_long_hash(10**12), 72)]
    + [(1231, 77), (1237, 3), (java_double_hash(1.0), 71)]
    + [(31 * 1 + java_string_hash("a"), 41)],
)
def test_c2_mixing_of_java_hash_codes(code: int, key_group: int) -> None:
    assert murmur_mix(code) % 128 == key_group


def test_c1_mixed_code_is_never_negative() -> None:
    assert all(murmur_mix(code * 2654435761) >= 0 for code in range(10_000))


@pytest.mark.parametrize(
    ("parallelism", "maximum"),
    [(1, 128), (85, 128), (86, 256), (171, 256), (200, 512), (1000, 2048), (21846, 32768)],
)
def test_c3_default_max_parallelism(parallelism: int, maximum: int) -> None:
    assert default_max_parallelism(parallelism) == maximum


@pytest.mark.parametrize(
    ("maximum", "parallelism", "ranges"),
    [
        (10, 3, [(0, 3), (4, 6), (7, 9)]),
        (128, 5, [(0, 25), (26, 51), (52, 76), (77, 102), (103, 127)]),
    ],
)
def test_c4_ranges(maximum: int, parallelism: int, ranges: list[tuple[int, int]]) -> None:
    found = [key_group_range(i, parallelism, maximum) for i in range(parallelism)]
    assert [(r.start, r.stop - 1) for r in found] == ranges
    for subtask, key_groups in enumerate(found):
        assert all(subtask_of(kg, parallelism, maximum) == subtask for kg in key_groups)


KEYS: list[Any] = [
    "user-42",
    42,
    -1,
    2**100,
    1.5,
    b"\x00\xff",
    None,
    ("a", 1),
    Row("a", 1),
    uuid.SafeUUID.safe,
    http.HTTPStatus.OK,
    decimal.Decimal("1.50"),
    datetime.date(2026, 1, 2),
    datetime.datetime(2026, 1, 2, 3, 4, 5),
    frozenset({"x", "y"}),
    uuid.UUID(int=7),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_hash_is_the_same_in_another_process(key: Any) -> None:
    code = (
        "import pickle, sys; from millpond.core.key_groups import stable_hash; "
        "print(stable_hash(pickle.loads(bytes.fromhex(sys.argv[1]))))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, pickle.dumps(key).hex()],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "12345"},
    )
    assert int(answer.stdout) == stable_hash(key)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0, -0.0), (decimal.Decimal("2.50"), decimal.Decimal("2.5"))]
    + [((1, "a"), (True, "a")), (http.HTTPStatus.OK, 200)],
)
def test_equal_keys_have_equal_key_groups(one: Any, other: Any) -> None:
    assert one == other
    assert key_group_of(one, 128) == key_group_of(other, 128)


@pytest.mark.parametrize("key", [[1], {"a": 1}, object()])
def test_key_without_a_stable_hash_is_refused(key: Any) -> None:
    with pytest.raises(ProgramError, match="cannot be used"):
        stable_hash(key)


def test_keys_spread_evenly_over_key_groups() -> None:
    counts = [0] * 128
    for number in range(128 * 100):
        counts[key_group_of(f"user-{number}", 128)] += 1
    assert min(counts) > 50
    assert max(counts) < 160


def test_many_keys_at_once_get_the_groups_each_would_get() -> None:
    strings = [f"user-{number}" for number in range(5000)] + ["", "\u00e4"]
    numbers = [*range(-3000, 3000), 1 << 40, -(1 << 63), (1 << 63) - 1]
    for keys in (strings, numbers):
        found = key_groups_of(keys, 128)
        assert found is not None
        assert found.tolist() == [key_group_of(key, 128) for key in keys]
    for mixed in ([1, "x"], [1 << 63], ["\ud800"], [True]):
        assert key_groups_of(mixed, 128) is None
