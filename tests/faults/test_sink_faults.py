"""kill -9 of the driver while Kafka, PostgreSQL and files are committed: every record once (E43).

Seeds are 0 to MILLPOND_FAULT_SEEDS - 1 (1 if not set); bin/soak runs more.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import psycopg
import pytest
from pyarrow import parquet

from millpond.core.fault_points import OUTPUT_POINTS, POINTS
from tests.conftest import delivered_lines
from tests.faults.job_run import JobRun, run_to_the_end
from tests.faults.sinks_job import BATCHES, PART_BYTES, VALUES
from tests.servers import KafkaServer, PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.soak]
SEEDS = range(int(os.environ.get("MILLPOND_FAULT_SEEDS", "1")))
SINKS = 4


class SinksRun(JobRun):
    module = "tests.faults.sinks_job"


def plan_faults(folder: Path, seed: int) -> list[str]:
    """Two kills between the commits of sinks; with other seeds one more, at another step of a batch."""
    chance = random.Random(f"sinks {seed}")
    folder.mkdir(parents=True)
    planned = [(point, chance.randint(1, SINKS * (BATCHES - 1))) for point in OUTPUT_POINTS]
    if seed:
        other = chance.choice([point for point in POINTS if point.startswith("driver")])
        planned.append((other, chance.randint(1, BATCHES - 1)))
    for point, visit in planned:
        (folder / f"{point}.at").write_text(str(visit))
    return [f"{point} at visit {visit}" for point, visit in planned]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_sink_has_every_record_once(seed: int, tmp_path: Path) -> None:
    planned = plan_faults(tmp_path / "faults", seed)
    servers = KafkaServer(tmp_path / "kafka"), PostgresServer(tmp_path)
    kafka, postgres = servers
    try:
        for server in servers:
            server.start()
        kafka.create("out", 2)
        with psycopg.connect(postgres.url) as connection:
            connection.execute("create table texts (id int, text text)")
        settings = {"kafka": kafka.servers, "postgres": postgres.url, "topic": "out"}
        killed = run_to_the_end(tmp_path, kind=SinksRun, **settings)
        assert killed == len(planned), planned
        texts = sorted(text for _, text in VALUES)
        assert sorted(value.decode() for value in kafka.received("out")) == texts, planned
        with psycopg.connect(postgres.url) as connection:
            rows = connection.execute("select id, text from texts order by id").fetchall()
        assert rows == VALUES, planned
    finally:
        for server in servers:
            server.stop()
    lines, columns = tmp_path / "output" / "lines", tmp_path / "output" / "parquet"
    assert delivered_lines(lines) == texts, planned
    assert max(path.stat().st_size for path in lines.iterdir()) <= PART_BYTES
    found = [row for path in columns.iterdir() for row in parquet.read_table(path).to_pylist()]
    assert sorted((row["id"], row["text"]) for row in found) == VALUES, planned
    for folder in (lines, columns):
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
