"""`millpond capping run` on Spark, into a real Redis."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millpond.driver.job_folder import is_locked
from tests.capping import reference
from tests.servers import RedisServer, wait_until

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
        self.rules = self.input / "rules.yaml"  # as people do; it is no input
        self.rules.write_text(json.dumps({"rules": RULES}))  # JSON is YAML
        self.records: list[dict[str, Any]] = []
        self._arguments = [
            *("run", "--input", str(self.input), "--rules", str(self.rules)),
            *("--redis", self.redis.url, "--checkpoint", str(folder / "checkpoint")),
            *("--master", "local[2]", "--parallelism", "2"),
        ]

    def write(self, name: str, records: list[dict[str, Any]]) -> None:
        self.records += records
        with (self.input / name).open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def run(self) -> subprocess.CompletedProcess[str]:
        done = capping(*self._arguments, "--until-end")
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    @contextmanager
    def running(self) -> Iterator[None]:
        """While it goes on and on; it ends as if Ctrl-C was pressed."""
        command = [sys.executable, "-m", "millpond", "capping", *self._arguments]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            wait_until(
                lambda: is_locked(self.folder / "checkpoint", "frequency capping"), "no start"
            )
            yield
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130

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


def test_orders_are_obeyed_whether_the_job_runs_or_not(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """P7: explain, forget, rebuild."""
    product = Product(tmp_path, redis_server)
    product.write("a.jsonl", views(5, 0, 24, 1000))
    product.run()
    expected = product.expected()
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    key = next(key for key in sorted(expected) if any(m.startswith("ad:") for m in expected[key]))
    user = key.removeprefix("cap:{").removesuffix("}")
    ad = next(m for m in sorted(expected[key]) if m.startswith("ad:")).removeprefix("ad:")
    redis_server.client().flushall()
    with product.running():
        assert capping("rebuild-redis", *checkpoint).returncode == 0
        assert redis_server.sets() == expected
        told = capping("explain", user, ad, *checkpoint)
        assert f"ad:{ad} by rule 'ads'" in told.stdout
        assert "CAPPED since 2023-11-" in told.stdout
        (answer,) = json.loads(capping("explain", user, "--json", *checkpoint).stdout)
        seen = [r for r in product.records if str(r["user_no"]) == user and r["da_id"] == ad]
        (pair,) = (p for p in answer["pairs"] if p["member"] == f"ad:{ad}")
        assert pair["views"] == sorted(record["log_time"] for record in seen)
        assert capping("forget", user, *checkpoint).returncode == 0
        del expected[key]
        assert redis_server.sets() == expected
    told = capping("explain", user, *checkpoint)
    assert "starting it for this order" in told.stderr
    assert "Nothing is known about user" in told.stdout
    product.records = [r for r in product.records if str(r["user_no"]) != user]
    product.write("b.jsonl", views(6, 20, 10, 200))
    product.run()
    assert redis_server.sets() == product.expected(), "the job goes on"


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
