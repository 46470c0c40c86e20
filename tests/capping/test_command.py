"""`millpond capping run` on Spark, into a real Redis."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capping import reference
from tests.servers import RedisServer

pytestmark = pytest.mark.spark
START = 1_700_000_000_000
RULES = [
    {"name": "ads", "level": "ad", "limit": 3, "window": "2d"},
    {"name": "campaigns", "level": "campaign", "limit": 5, "window": {"calendar": "day"}},
]


def capping(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millpond", "capping", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class Product:
    def __init__(self, folder: Path, redis_server: RedisServer) -> None:
        self.folder, self.redis = folder, redis_server
        self.input = folder / "input"
        self.input.mkdir()
        self.rules = folder / "rules.yaml"
        self.rules.write_text(json.dumps({"rules": RULES}))  # JSON is YAML
        self.records: list[dict[str, Any]] = []

    def write(self, name: str, records: list[dict[str, Any]]) -> None:
        self.records += records
        with (self.input / name).open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def run(self) -> subprocess.CompletedProcess[str]:
        done = capping(
            "run",
            *("--input", str(self.input), "--rules", str(self.rules), "--redis", self.redis.url),
            *("--checkpoint", str(self.folder / "checkpoint"), "--until-end"),
            *("--master", "local[2]", "--parallelism", "2", "-D", "spark.ui.enabled=false"),
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    def expected(self) -> dict[str, set[str]]:
        newest = max(record["log_time"] for record in self.records)
        found = reference.capped_at(self.records, RULES, newest)
        return {f"cap:{{{user}}}": members for user, members in found.items()}


def views(seed: int, start_h: int, hours: int, count: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return [
        {
            "user_no": chance.choice([chance.randrange(40), f"u{chance.randrange(10)}"]),
            "da_id": f"ad-{chance.randrange(8)}",
            "campaign_id": f"c{chance.randrange(3)}",
            "log_time": START + int((start_h + chance.random() * hours) * 3_600_000),
        }
        for _ in range(count)
    ]


def test_redis_is_as_the_reference_says_and_the_job_goes_on(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """P1, P3, P7; --until-end. Files are in no order; a second run has more of them, and one has grown."""
    product = Product(tmp_path, redis_server)
    product.write("b.jsonl", views(1, 0, 24, 1500))
    product.write("a.jsonl", views(2, 12, 30, 1500))
    with (product.input / "c.jsonl").open("wb") as file:
        file.write(b'{"broken\n\xff\xfe{}\n{"user_no": 1, "da_id": "x"}\n[]\n')
    done = product.run()
    assert redis_server.sets() == product.expected()
    assert len(product.expected()) > 20
    assert "3,004 records, 4 bad" in done.stdout
    letters = [
        json.loads(line)
        for path in (tmp_path / "checkpoint" / "dead-letters").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert sorted(letter["reason"] for letter in letters) == [
        "no time",
        "not JSON",
        "not UTF-8",
        "not an object",
    ]
    product.write("a.jsonl", views(3, 40, 10, 300))
    product.write("d.jsonl", views(4, 60, 20, 800))
    product.run()
    assert redis_server.sets() == product.expected()


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("rules:\n- name: a\n  limit: 0\n  window: 5d\n", "line 3: limit must be a whole number"),
        ("rules:\n- name: a\n  limit: 1\n  window: soon\n", "line 4: window: 'soon' is not a dur"),
        ("rules:\n- name: a\n  limt: 1\n", "line 3: a rule has no limt"),
        ("rules: [\n", "line 2: "),
    ],
)
def test_wrong_rules_are_refused_with_their_line(tmp_path: Path, rules: str, reason: str) -> None:
    (tmp_path / "rules.yaml").write_text(rules)
    done = capping(
        "run",
        *("--input", str(tmp_path), "--rules", str(tmp_path / "rules.yaml")),
        *("--redis", "redis://127.0.0.1:1/0", "--checkpoint", str(tmp_path / "checkpoint")),
    )
    assert done.returncode != 0
    assert f"rules.yaml, {reason}" in done.stderr
    assert "Traceback" not in done.stderr
