"""What cluster managers get, and what is said when something is missing (O3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.common import Configuration, options
from millpond.errors import MillpondError, ProgramError, SetupError
from millpond.executors.slot import settings as slot_settings
from millpond.executors.slot.settings import SlotSettings
from millpond.executors.spark import cluster_managers
from millpond.executors.spark.cluster_managers import manager_settings
from millpond.executors.spark.session import default_parallelism

HADOOP = {"HADOOP_CONF_DIR": "/etc/hadoop"}


def settings(
    master: str,
    cores: int | None = 4,
    environment: dict[str, str] | None = None,
    **given: object,
) -> dict[str, str]:
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in given.items()}
    known = {key: str(value) for key, value in named.items() if key.startswith("spark.")}
    configuration = Configuration.from_dict(named)
    return manager_settings(master, configuration, known.get, cores, environment or {})


def test_job_takes_the_cores_it_can_use_of_a_standalone_cluster() -> None:
    """The rest is for other jobs."""
    assert settings("spark://host:7077") == {"spark.cores.max": "4"}
    assert settings("spark://host:7077", None) == {}
    assert settings("spark://host:7077", spark__cores__max=2) == {}
    assert settings("local[2]") == settings("local-cluster[1,1,1024]") == {}


def test_yarn_gets_as_many_executors_as_the_job_needs() -> None:
    found = settings("yarn", 5, HADOOP, spark__executor__cores=2)
    assert found["spark.executor.instances"] == "3"
    assert found["spark.submit.deployMode"] == "client"
    assert found["spark.executor.memoryOverheadFactor"] == "1.0"
    assert "spark.executor.instances" not in settings("yarn", None, HADOOP)


def test_kubernetes_gets_image_and_where_the_driver_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "namespace").write_text("millpond\n")
    monkeypatch.setattr(cluster_managers, "_NAMESPACE_FILE", tmp_path / "namespace")
    environment = {"MILLPOND_POD_IP": "10.0.0.7", "MILLPOND_POD_NAME": "millpond-0"}
    master = "k8s://https://kubernetes.default.svc"
    found = settings(master, 2, environment, millpond__kubernetes__image="millpond:1")
    assert found == {
        "spark.kubernetes.container.image": "millpond:1",
        "spark.submit.deployMode": "client",
        "spark.executor.memoryOverheadFactor": "1.0",
        "spark.executor.instances": "2",
        "spark.driver.host": "10.0.0.7",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.kubernetes.driver.pod.name": "millpond-0",
        "spark.kubernetes.namespace": "millpond",
    }
    own = settings(master, 2, {}, spark__kubernetes__container__image="theirs:2")
    assert "spark.kubernetes.container.image" not in own, "what the user says stays"


@pytest.mark.parametrize(
    ("master", "kind", "text"),
    [
        ("yarn", SetupError, "HADOOP_CONF_DIR"),
        ("k8s://https://host", ProgramError, "millpond.kubernetes.image"),
        ("k8s://https://", ProgramError, "names no host"),
        ("yarn-cluster", ProgramError, "Spark does not know a master"),
        ("mesos://host", ProgramError, "Spark does not know a master"),
        ("sparky", ProgramError, "spark://HOST:PORT"),
    ],
)
def test_what_is_missing_is_said_before_spark_starts(
    master: str, kind: type[MillpondError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        settings(master)


DYNAMIC = options.DYNAMIC_ALLOCATION.key.replace(".", "__").replace("-", "_")


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn"])
def test_dynamic_allocation_replaces_a_fixed_number_of_executors(master: str) -> None:
    found = settings(
        master, 4, HADOOP, **{DYNAMIC: "on", f"{DYNAMIC}__min": 2, f"{DYNAMIC}__max": 6}
    )
    assert "spark.cores.max" not in found and "spark.executor.instances" not in found
    dynamic = "spark.dynamicAllocation"
    assert {key: value for key, value in found.items() if key.startswith(dynamic)} == {
        f"{dynamic}.enabled": "true",
        f"{dynamic}.shuffleTracking.enabled": "true",
        f"{dynamic}.shuffleTracking.timeout": "60s",
        f"{dynamic}.cachedExecutorIdleTimeout": "60s",
        f"{dynamic}.minExecutors": "2",
        f"{dynamic}.maxExecutors": "6",
    }
    unlimited = settings(master, 4, HADOOP, **{DYNAMIC: "on"})
    assert f"{dynamic}.maxExecutors" not in unlimited


@pytest.mark.parametrize(
    ("master", "given", "text"),
    [
        ("local[2]", {DYNAMIC: "on"}, "needs a cluster"),
        ("yarn", {DYNAMIC: "yes"}, "must be one of on, off"),
        ("yarn", {DYNAMIC: "on", f"{DYNAMIC}__min": 3, f"{DYNAMIC}__max": 2}, "do not fit"),
        ("yarn", {DYNAMIC: "on", f"{DYNAMIC}__min": -1}, "do not fit"),
    ],
)
def test_dynamic_allocation_that_cannot_work_is_refused(
    master: str, given: dict[str, object], text: str
) -> None:
    with pytest.raises(ProgramError, match=text):
        settings(master, 4, HADOOP, **given)


def test_dynamic_allocation_needs_a_parallelism() -> None:
    """The number of cores is none: it changes."""
    on = Configuration.from_dict({options.DYNAMIC_ALLOCATION.key: "on"})
    with pytest.raises(ProgramError, match=r"set parallelism\.default"):
        default_parallelism(on)


def test_slots_share_the_memory_of_their_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slots = SlotSettings("job", "run", 0, "file", 2, 0, 60, 60)
    monkeypatch.setattr(slot_settings, "_CONTAINER_LIMIT", str(tmp_path / "memory.max"))
    whole = slots.memory_limit_mb()
    (tmp_path / "memory.max").write_text("max\n")
    assert slots.memory_limit_mb() == whole
    (tmp_path / "memory.max").write_text(f"{1000 << 20}\n")
    assert slots.memory_limit_mb() == 350
