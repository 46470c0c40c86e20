"""Rows to a real PostgreSQL, once each (E43)."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millpond.common import Row, Types
from millpond.datastream.connectors import Epoch
from millpond.datastream.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcSink,
    _with_psycopg_marks,
)
from millpond.driver.planning import plan_job
from millpond.errors import JobExecutionError, ProgramError, UserFunctionError
from millpond.plan.physical import JobPlan
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.servers import PostgresServer
from tests.unit.driver.test_recovery import Crash, StandInForSpark

TYPE = Types.ROW_NAMED(["name", "count"], [Types.STRING(), Types.INT()])
RECORDS = [Row(name="a", count=1), CUT, Row(name="b", count=2), CUT, ("c", 3), CUT]


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    server = PostgresServer(tmp_path_factory.mktemp("postgres"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def table(postgres: PostgresServer, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid)) % 10**9}"
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"create table {name} (name text, count int check (count < 100))")
    return name


def rows(postgres: PostgresServer, table: str) -> list[Any]:
    with psycopg.connect(postgres.url) as connection:
        return connection.execute(f"select name, count from {table} order by name").fetchall()


def sink(postgres: PostgresServer, table: str) -> JdbcSink:
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    return JdbcSink.sink(
        f"insert into {table} values (?, ?)",
        TYPE,
        options.with_url(f"jdbc:{postgres.url}").with_user_name("tester").build(),
        JdbcExecutionOptions.builder().with_max_retries(1).build(),
    )


def job(postgres: PostgresServer, table: str, records: list[Any]) -> JobPlan:
    environment = direct_environment()
    stream = environment._source(MarkedSource(records), "records", None)
    stream.add_sink(sink(postgres, table)).uid("out")
    graph, config = environment._pending_graph(), environment.get_config()
    return plan_job(graph, environment._configuration, config, None)


@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
def test_every_row_comes_once_wherever_the_job_dies(
    postgres: PostgresServer, table: str, point: str, tmp_path: Path
) -> None:
    spark = StandInForSpark()
    with pytest.raises(Crash):
        spark.run(job(postgres, table, RECORDS), tmp_path, (1, point))
    spark.run(job(postgres, table, RECORDS), tmp_path, None)
    assert rows(postgres, table) == [("a", 1), ("b", 2), ("c", 3)]


def test_a_committed_epoch_is_not_written_again(
    postgres: PostgresServer, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = JdbcSink.commit

    def commit_and_die(self: Any, epoch: Any, messages: Any) -> None:
        commit(self, epoch, messages)
        raise Crash

    spark = StandInForSpark()
    monkeypatch.setattr(JdbcSink, "commit", commit_and_die)
    with pytest.raises(UserFunctionError, match="Crash"):
        spark.run(job(postgres, table, RECORDS), tmp_path, None)
    monkeypatch.undo()
    spark.run(job(postgres, table, RECORDS), tmp_path, None)
    assert rows(postgres, table) == [("a", 1), ("b", 2), ("c", 3)]


def test_an_epoch_is_written_whole_or_not_at_all(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    bad = [("a", 1), CUT, ("b", 2), ("c", 1000), CUT]
    with pytest.raises(UserFunctionError, match=r"check constraint(.|\n)*committing epoch 1"):
        StandInForSpark().run(job(postgres, table, bad), tmp_path, None)
    assert rows(postgres, table) == [("a", 1)]


def test_server_that_is_away_is_told(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    spark = StandInForSpark()
    postgres.stop()
    try:
        with pytest.raises(
            JobExecutionError, match="are kept, and are written when the job resumes"
        ):
            spark.run(job(postgres, table, RECORDS), tmp_path, None)
    finally:
        postgres.start()
    spark.run(job(postgres, table, RECORDS), tmp_path, None)
    assert rows(postgres, table) == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("jdbc:postgresql://tester:se%40cret@127.0.0.1:1/db", None),
        ("jdbc:postgresql://127.0.0.1:1/db?user=tester&password=se%40cret", None),
        ("jdbc:postgresql://127.0.0.1:1/db", "se@cret"),
        ("jdbc:postgresql://127.0.0.1:port/db?password=se%40cret", None),
    ],
)
def test_password_is_never_shown(url: str, password: str | None) -> None:
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url)
    if password is not None:
        options = options.with_user_name("tester").with_password(password)
    none = JdbcExecutionOptions.builder().with_max_retries(0).build()
    own = JdbcSink.sink("insert into t values (?)", TYPE, options.build(), none)
    with pytest.raises(Exception, match=r".") as error:
        own.commit(Epoch(0, "job", "sink"), [[("a",)]])
    shown = str(error.value)
    assert "127.0.0.1" in shown or "port" in shown
    for form in ("se@cret", "se%40cret"):
        assert form not in shown
        assert form not in "".join(traceback.format_exception(error.value))


def test_marks_within_quotes_stay() -> None:
    sql = "insert into \"a?b\" values (?, 'why?', 50 % 3, ?)"
    assert _with_psycopg_marks(sql) == "insert into \"a?b\" values (%s, 'why?', 50 %% 3, %s)"


def test_other_databases_are_refused() -> None:
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:mysql://x/y")
    with pytest.raises(ProgramError, match="only to PostgreSQL"):
        JdbcSink.sink("insert", TYPE, options.build()).validate()
