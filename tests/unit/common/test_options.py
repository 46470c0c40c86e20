"""Settings are checked before a job starts (CONTRIBUTING: nothing is silently ignored)."""

from __future__ import annotations

import pytest

from millpond.common import Configuration, options
from millpond.datastream import StreamExecutionEnvironment
from millpond.driver.planning import plan_job
from millpond.errors import ProgramError
from millpond.testing import direct_environment


def environment_with(**settings: object) -> StreamExecutionEnvironment:
    environment = direct_environment()
    environment.configure(Configuration.from_dict(settings))
    environment.from_collection([1]).print()
    return environment


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("millpond.batch.target", "Did you mean 'millpond.batch.target-ms'? "),
        ("millpond.slot.memory", "Did you mean 'millpond.slot.memory-mb'? "),
        ("millpond.zzz", "There is no setting 'millpond.zzz'. `millpond settings`"),
    ],
)
def test_setting_that_does_not_exist_is_refused(key: str, hint: str) -> None:
    with pytest.raises(ProgramError, match=f"There is no setting '{key}'") as refused:
        environment_with(**{key: "1"}).execute()
    assert hint in str(refused.value)


def test_settings_of_flink_that_have_no_meaning_here_are_left_alone() -> None:
    environment_with(**{"taskmanager.numberOfTaskSlots": "4"}).execute()


@pytest.mark.parametrize("key", ["timeout", "min-pause", "interval"])
def test_times_of_checkpoints_that_are_no_times_are_refused(key: str) -> None:
    with pytest.raises(ProgramError, match=f"'execution.checkpointing.{key}' must be a time"):
        environment_with(**{f"execution.checkpointing.{key}": "soon"}).execute()


def test_times_of_checkpoints_are_written_as_in_flink_or_in_milliseconds() -> None:
    """E40: `execution.checkpointing.timeout: 10 min` is what programs and Flink's own pages say."""
    environment = direct_environment()
    config = environment.get_checkpoint_config()
    assert config.get_checkpoint_interval() == -1
    environment.configure(
        Configuration.from_dict(
            {
                "execution.checkpointing.timeout": "10 min",
                "execution.checkpointing.min-pause": "1 s",
                "execution.checkpointing.interval": "10s",
            }
        )
    )
    assert config.get_checkpoint_timeout() == 600_000
    assert config.get_min_pause_between_checkpoints() == 1000
    assert config.get_checkpoint_interval() == 10_000
    config.set_checkpoint_timeout(2500).set_min_pause_between_checkpoints(30)
    environment.enable_checkpointing(5000)
    assert config.get_checkpoint_timeout() == 2500
    assert config.get_min_pause_between_checkpoints() == 30
    assert config.get_checkpoint_interval() == 5000


def test_every_key_is_listed_once() -> None:
    keys = [option.key for option in options.ALL]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 50),
        ({"millpond.executor": "direct"}, 0),
        ({"millpond.executor": "direct", "millpond.batch.interval-ms": 7}, 7),
    ],
)
def test_batches_on_spark_do_not_follow_each_other_without_a_pause(
    settings: dict[str, object], expected: int
) -> None:
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(settings)
    )
    environment.from_collection([1]).print()
    graph, config = environment._pending_graph(), environment.get_config()
    plan = plan_job(graph, environment._configuration, config, None)
    assert plan.settings.batch_interval_ms == expected
