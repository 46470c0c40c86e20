"""The file with rules while people write it: what is empty, cut off or half written does no harm (P7)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from millpond.apps.frequency_capping.rules import RuleError, TimesToLive
from millpond.apps.frequency_capping.rules_source import RulesSource
from millpond.cli.main import main
from millpond.datastream.connectors.base import SplitEnumerator

ADS = {"name": "ads", "level": "ad", "limit": 3, "window": "2d"}
CAMPAIGNS = {"name": "campaigns", "level": "campaign", "limit": 5, "window": "1d"}


def text_of(*rules: dict[str, Any]) -> str:
    return json.dumps({"rules": list(rules)})  # JSON is YAML


class Job:
    """A job's view of the file. Each `look` is a poll; `restart` is what a kill -9 leaves: the position."""

    def __init__(self, folder: Path, text: str, expects_rules: bool = True) -> None:
        self.file = folder / "rules.yaml"
        self.file.write_text(text)
        self._folder, self._expects_rules = folder, expects_rules
        self._enumerator = self._new()

    def _new(self) -> SplitEnumerator:
        control, lives = str(self._folder / "control"), TimesToLive()
        source = RulesSource(
            str(self.file), control, lives, expects_rules=self._expects_rules, look_every_ms=0
        )
        return source.create_enumerator(1, cast(Any, None))

    def look(self, text: str | None = None) -> list[str] | None:
        """After the file was written, if there is a text: names of the rules that are handed out."""
        if text is not None:
            self.file.write_text(text)
        works = self._enumerator.poll(10)
        if not works:
            return None
        return [rule["name"] for rule in json.loads(works[0].arguments)["rules"]]

    def restart(self) -> None:
        position = self._enumerator.position()
        self._enumerator = self._new()
        self._enumerator.restore(position)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path, text_of(ADS, CAMPAIGNS))
    assert job.look() == ["ads", "campaigns"]
    return job


@pytest.mark.parametrize("text", ["", "\n\n", "# all gone\n", "{}", "filter: {country: DE}\n"])
def test_file_without_rules_is_refused_once_there_are_some(
    job: Job, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """A disk that is full, or an editor that saves in two steps, must not wipe all counts."""
    assert [job.look(text), *(job.look() for _ in range(5))] == [None] * 6
    (warning,) = (own for own in caplog.records if own.levelno >= logging.WARNING)
    assert str(job.file) in warning.getMessage() and "rules:" in warning.getMessage()
    assert job.look(text_of(ADS, CAMPAIGNS)) is None
    assert job.look() is None, "the rules are as they were: there is nothing to tell"


def test_job_killed_while_the_file_is_empty_keeps_its_rules(job: Job) -> None:
    job.look("")
    job.restart()
    assert [job.look(), job.look(), job.look()] == [None] * 3
    assert [job.look(text_of(ADS, CAMPAIGNS)), job.look()] == [None, None]


def test_job_does_not_begin_with_a_file_that_has_just_been_emptied(tmp_path: Path) -> None:
    """There were rules when the job was described, so the rule without a file is not what is meant."""
    job = Job(tmp_path, "")
    with pytest.raises(RuleError, match=r"rules\.yaml: `rules:` is missing"):
        job.look()


def test_start_is_refused_if_the_file_has_lost_its_rules_since_the_last_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its filter and fields are gone as well then, and they count from the start of a job."""
    rules, checkpoint = tmp_path / "rules.yaml", tmp_path / "state"
    rules.write_text("")
    checkpoint.mkdir()
    (checkpoint / "capping.json").write_text('{"version": 1, "names_rules": true}')
    run = ["capping", "run", "--input", str(tmp_path), "--rules", str(rules)]
    assert main([*run, "--checkpoint", str(checkpoint)]) == 1
    assert f"--rules {rules}: `rules:` is missing" in capsys.readouterr().err
    assert [path.name for path in checkpoint.iterdir()] == ["capping.json"], "nothing was started"


def test_file_that_never_had_rules_stands_for_the_rule_without_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(tmp_path, "filter: {country: DE}\n", expects_rules=False)
    assert job.look() == ["default"]
    assert [job.look("filter: {country: AT}\n"), job.look(), job.look()] == [None] * 3
    job.restart()
    assert [job.look(), job.look()] == [None, None]
    assert caplog.records == []
    assert [job.look(text_of(ADS)), job.look()] == [None, ["ads"]]


def test_change_is_taken_when_it_reads_the_same_twice(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    halfway = text_of(ADS)  # as good as any file, but not what the author has in mind
    assert job.look(halfway) is None
    assert job.look(text_of(ADS, {**CAMPAIGNS, "limit": 9})) is None
    assert caplog.records == []
    assert job.look() == ["ads", "campaigns"]
    assert job.look() is None


def test_file_that_goes_back_in_time_is_no_change(job: Job) -> None:
    assert [job.look(text_of(ADS)), job.look(text_of(ADS, CAMPAIGNS)), job.look()] == [None] * 3


@pytest.mark.parametrize("text", ["rules: [", "rules: 5", "rules:\n", "rules:\n- name: a\n"])
def test_wrong_file_is_told_once_when_it_has_come_to_rest(
    job: Job, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    assert job.look(text) is None and caplog.records == []
    assert [job.look(), job.look(), job.look()] == [None] * 3
    (warning,) = caplog.messages
    assert "rules.yaml" in warning and "stay as they were" in warning


def test_missing_file_is_told_once_and_its_return_is_no_change(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    """Some editors rename the old file, and write another one."""
    job.file.unlink()
    assert [job.look(), job.look(), job.look()] == [None] * 3
    assert len(caplog.messages) == 1 and "cannot be read" in caplog.messages[0]
    assert [job.look(text_of(ADS, CAMPAIGNS)), job.look()] == [None, None]


def test_file_changed_while_the_job_was_down_counts_from_its_first_batch(job: Job) -> None:
    """Else views of the first batch would still be counted by the old rules."""
    job.file.write_text(text_of(ADS))
    job.restart()
    assert job.look() == ["ads"]


def test_file_that_changes_while_the_job_starts_is_looked_at_until_it_rests(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("")
    texts = [text_of(ADS), text_of(ADS, CAMPAIGNS)]
    source = RulesSource(str(path), str(tmp_path / "control"), TimesToLive(), look_every_ms=0)
    enumerator = source.create_enumerator(1, cast(Any, None))

    def write_on(_: float) -> None:
        if texts:
            path.write_text(texts.pop(0))

    pausing(enumerator, write_on)
    path.write_text("rules: [")
    (work,) = enumerator.poll(10)
    assert json.loads(work.arguments)["rules"] == [ADS, CAMPAIGNS]


def test_looks_are_no_closer_than_the_interval_however_often_the_job_polls(tmp_path: Path) -> None:
    """A job with short batches polls many times within an editor's two steps."""
    path, now_s = tmp_path / "rules.yaml", 0.0
    path.write_text(text_of(ADS))
    source = RulesSource(str(path), str(tmp_path / "control"), TimesToLive(), look_every_ms=1000)
    enumerator = source.create_enumerator(1, cast(Any, None))
    cast(Any, enumerator)._file.clock_s = lambda: now_s
    assert len(enumerator.poll(10)) == 1
    now_s = 1.0
    path.write_text(text_of(CAMPAIGNS))
    assert enumerator.poll(10) == []
    now_s = 1.9
    assert enumerator.poll(10) == []
    now_s = 2.0
    assert len(enumerator.poll(10)) == 1


def pausing(enumerator: SplitEnumerator, pause: Callable[[float], None]) -> None:
    cast(Any, enumerator)._file.pause_s = pause


def test_rules_that_vanish_are_named(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    assert [job.look(text_of()), job.look()] == [None, []]
    (warning,) = caplog.messages
    assert "rules.yaml" in warning and "'ads', 'campaigns'" in warning
    assert [job.look(text_of(ADS)), job.look()] == [None, ["ads"]]
    assert len(caplog.messages) == 1
