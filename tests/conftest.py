"""Shared fixtures. Spark is started once per test run; jobs differ only in their settings."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.common import Configuration
from millpond.core import journal
from millpond.core.storage import FileStorage
from millpond.datastream import StreamExecutionEnvironment
from millpond.errors import CorruptDataError

TEST_TIMEOUT_S = 300
MakeEnvironment = Callable[..., StreamExecutionEnvironment]


@pytest.fixture(autouse=True)
def no_test_hangs() -> Iterator[None]:
    """A test that waits for what never comes fails, instead of stopping the whole run."""

    def give_up(*_: Any) -> None:
        pytest.fail(f"the test did not end within {TEST_TIMEOUT_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(TEST_TIMEOUT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True, scope="session")
def no_cluster_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is tested must not go to a cluster that the user of this machine has started."""
    os.environ["MILLPOND_HOME"] = str(tmp_path_factory.mktemp("home") / "millpond")
    os.environ.pop("MILLPOND_ADDRESS", None)


@pytest.fixture(scope="session")
def spark_settings() -> Iterator[dict[str, Any]]:
    """Settings of a local Spark with two cores."""
    from millpond.executors.spark.session import stop_session

    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # of Spark's workers, not of the tests
    yield {"millpond.master": "local[2]"}
    stop_session()


def delivered_lines(folder: Path) -> list[str]:
    """The lines of a file sink's finished files."""
    return sorted(
        line
        for path in folder.glob("*")
        if not path.name.startswith(".")  # still being written, and may go at any time
        for line in path.read_text().splitlines()
    )


def newest_epoch(job_folder: Path) -> int:
    """The newest batch of a job that counts; -1 if there is none, or no longer."""
    try:
        return journal.newest_epoch(FileStorage(job_folder))
    except CorruptDataError:  # a log of the journal was removed while it was read
        return -1


@pytest.fixture
def spark_environment(spark_settings: dict[str, Any]) -> MakeEnvironment:
    """Makes environments."""

    def make(**settings: Any) -> StreamExecutionEnvironment:
        named = {key.replace("__", ".").replace("_", "-"): v for key, v in settings.items()}
        return StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict({"parallelism.default": 2, **spark_settings, **named})
        )

    return make
