"""Writes rows to PostgreSQL, with the names of PyFlink's JDBC connector. Needs the extra `jdbc` (psycopg).

Exactly once: workers turn records into rows; the driver writes those of an epoch in one transaction, together
with the epoch's number in the table `millpond_epochs`. After a crash that number shows whether the
transaction was committed.
"""

from __future__ import annotations

import importlib
import re
import time
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from millpond.common.typeinfo import TypeInformation
from millpond.common.types import Row
from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.functions import SinkContext
from millpond.errors import JobExecutionError, ProgramError, SetupError
from millpond.missing import module_getattr

_MARKS = """create table if not exists millpond_epochs (
    job_id text, sink text, epoch bigint not null, primary key (job_id, sink))"""
_MARK = """insert into millpond_epochs values (%s, %s, %s)
    on conflict (job_id, sink) do update set epoch = excluded.epoch"""


class JdbcConnectionOptions:
    """How to reach the database."""

    def __init__(
        self, url: str, user: str | None, password: str | None, driver: str | None
    ) -> None:
        self._url = url
        self._user = user
        self._password = password
        self._driver = driver

    def get_db_url(self) -> str:
        """Return the URL, jdbc:postgresql://HOST:PORT/DB."""
        return self._url

    def get_driver_name(self) -> str | None:
        """Return the name of the Java driver, which is not used, or None."""
        return self._driver

    def get_user_name(self) -> str | None:
        """Return the user, or None."""
        return self._user

    def get_password(self) -> str | None:
        """Return the password, or None."""
        return self._password

    class JdbcConnectionOptionsBuilder:
        """Builds connection options. Setters return the builder itself."""

        def __init__(self) -> None:
            self._url: str | None = None
            self._user: str | None = None
            self._password: str | None = None
            self._driver: str | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the URL, jdbc:postgresql://HOST:PORT/DB."""
            self._url = url
            return self

        def with_driver_name(
            self, driver_name: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Keep the name of the Java driver for PyFlink programs. It is not used."""
            self._driver = driver_name
            return self

        def with_user_name(
            self, user_name: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the user."""
            self._user = user_name
            return self

        def with_password(
            self, password: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the password."""
            self._password = password
            return self

        def build(self) -> JdbcConnectionOptions:
            """Return the options; raise ProgramError without a URL."""
            if self._url is None:
                raise ProgramError("JdbcConnectionOptions needs a URL: call with_url.")
            return JdbcConnectionOptions(self._url, self._user, self._password, self._driver)


class JdbcExecutionOptions:
    """How rows are written. Only the retries have an effect: every epoch is one transaction."""

    def __init__(self, interval_ms: int, size: int, retries: int) -> None:
        self._interval_ms = interval_ms
        self._size = size
        self._retries = retries

    def get_batch_interval_ms(self) -> int:
        """Return what was set. It has no effect."""
        return self._interval_ms

    def get_batch_size(self) -> int:
        """Return what was set. It has no effect."""
        return self._size

    def get_max_retries(self) -> int:
        """Return how many times a transaction is tried again when the database does not answer."""
        return self._retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Return options with 3 retries."""
        return JdbcExecutionOptions.builder().build()

    @staticmethod
    def builder() -> JdbcExecutionOptions.Builder:
        """Return a builder for the options."""
        return JdbcExecutionOptions.Builder()

    class Builder:
        """Builds execution options. Setters return the builder itself."""

        def __init__(self) -> None:
            self._interval_ms, self._size, self._retries = 0, 5000, 3

        def with_batch_size(self, size: int) -> JdbcExecutionOptions.Builder:
            """Keep the size for PyFlink programs. It has no effect: every epoch is one transaction."""
            self._size = size
            return self

        def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptions.Builder:
            """Keep the interval for PyFlink programs. It has no effect: every epoch is one transaction."""
            self._interval_ms = interval_ms
            return self

        def with_max_retries(self, max_retries: int) -> JdbcExecutionOptions.Builder:
            """Set how many times a transaction is tried again if the database does not answer; default 3."""
            self._retries = max_retries
            return self

        def build(self) -> JdbcExecutionOptions:
            """Return the options."""
            return JdbcExecutionOptions(self._interval_ms, self._size, self._retries)


class JdbcSink(TwoPhaseSink):
    """Writes records to PostgreSQL, for `add_sink` or `sink_to`."""

    def __init__(self, sql: str, connection: JdbcConnectionOptions, retries: int) -> None:
        self._sql = _with_psycopg_marks(sql)
        self._options = connection
        self._retries = retries
        self._connection: Any = None

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """Return a sink that runs `sql`, with a question mark for every field, for each record."""
        execution = jdbc_execution_options or JdbcExecutionOptions.defaults()
        return JdbcSink(sql, jdbc_connection_options, execution.get_max_retries())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def validate(self) -> None:
        _psycopg()
        _conninfo(self._options.get_db_url())

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _RowWriter()

    def commit(self, epoch: Epoch, messages: list[list[tuple[Any, ...]]]) -> None:
        rows = [row for message in messages for row in message]
        error = _psycopg().OperationalError  # the server is not reachable, or was not
        for attempt in range(self._retries + 1):
            try:
                self._write(epoch, rows)
                return
            except error as problem:
                self.close()
                if attempt == self._retries:
                    raise JobExecutionError(
                        f"{self._shown()} does not answer: {self._without_password(problem)}. "
                        f"The rows of epoch {epoch.number} are kept, and are written when the job resumes."
                    ) from None
                time.sleep(min(5.0, 0.1 * 4**attempt))

    def _shown(self) -> str:
        """Return the URL without user, password and settings."""
        scheme, _, rest = self._options.get_db_url().partition("?")[0].partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def _without_password(self, problem: Exception) -> str:
        """Return the client library's message without passwords, which it may repeat."""
        text = str(problem)
        url = urlsplit(_conninfo(self._options.get_db_url()))
        secrets = [self._options.get_password(), url.password, *_passwords_in(url.query)]
        for secret in filter(None, secrets):
            for form in (secret, unquote(secret), quote(secret, safe="")):
                text = text.replace(form, "***")
        return text

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, epoch: Epoch, rows: list[tuple[Any, ...]]) -> None:
        if self._connection is None:
            options = self._options
            given = {"user": options.get_user_name(), "password": options.get_password()}
            known = {name: value for name, value in given.items() if value is not None}
            self._connection = _psycopg().connect(_conninfo(options.get_db_url()), **known)
            with self._connection.transaction():
                self._connection.execute(_MARKS)
        mark = (epoch.job_id, epoch.sink_uid)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(
                "select epoch from millpond_epochs where job_id = %s and sink = %s for update", mark
            )
            known = cursor.fetchone()
            if known is not None and known[0] >= epoch.number:
                return
            cursor.executemany(self._sql, rows)
            cursor.execute(_MARK, (*mark, epoch.number))


class _RowWriter(SinkWriter):
    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def write(self, value: Any, context: SinkContext) -> None:
        self._rows.append(tuple(value) if isinstance(value, (Row, tuple, list)) else (value,))

    def prepare(self) -> list[tuple[Any, ...]]:
        return self._rows


def _with_psycopg_marks(sql: str) -> str:
    """Replace question marks outside quotes by psycopg's placeholders."""
    parts = re.split(r"('(?:[^']|'')*'|\"[^\"]*\")", sql.replace("%", "%%"))
    return "".join(
        part if number % 2 else part.replace("?", "%s") for number, part in enumerate(parts)
    )


def _passwords_in(query: str) -> list[str]:
    return [value for name, value in parse_qsl(query) if "pass" in name.lower()]


def _conninfo(url: str) -> str:
    if not url.startswith("jdbc:postgresql://"):
        kind = url.partition("//")[0]
        raise ProgramError(
            f"The URL begins with '{kind}', but JdbcSink writes only to PostgreSQL "
            "(jdbc:postgresql://HOST:PORT/DB)."
        )
    return url.removeprefix("jdbc:")


def _psycopg() -> ModuleType:
    try:
        return importlib.import_module("psycopg")
    except ImportError:
        raise SetupError(
            "JdbcSink needs the package psycopg: pip install 'millpond[jdbc]', on the driver's machine."
        ) from None


__getattr__ = module_getattr(__name__)
