"""Settings that Spark's cluster managers need besides the address (O3): local, standalone, YARN, Kubernetes.

Slots are executor cores: a job asks for as many as it has subtasks, and leaves the rest to other jobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.errors import ProgramError, SetupError

POD_IP_VARIABLE = "MILLPOND_POD_IP"
POD_NAME_VARIABLE = "MILLPOND_POD_NAME"
IMAGE = "spark.kubernetes.container.image"
_IDLE = "60s"  # as long as executors that hold nothing may be idle
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
Known = Callable[[str], str | None]


def manager_settings(
    master: str,
    configuration: Configuration,
    known: Known,
    cores: int | None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the settings for the master's cluster manager, without those that the user has set, which
    `known` returns. `cores` is how many cores the job can use, None if that is not known. Raises ProgramError
    or SetupError if something is missing, before Spark does so with pages of text."""
    if master.startswith("local"):
        settings = {}
    elif master.startswith("spark://"):
        settings = {} if cores is None else {"spark.cores.max": str(cores)}
    elif master == "yarn":
        settings = _yarn(known, cores, environment)
    elif master.startswith("k8s://"):
        settings = _kubernetes(master, configuration, known, cores, environment)
    else:
        raise ProgramError(
            f"Spark does not know a master such as '{master}'. Use local[N], spark://HOST:PORT, yarn or "
            "k8s://https://HOST:PORT."
        )
    dynamic = _dynamic_allocation(master, configuration)
    if dynamic:
        settings.pop("spark.executor.instances", None)
        settings.pop("spark.cores.max", None)
    settings.update(dynamic)
    return {key: value for key, value in settings.items() if known(key) is None}


def _dynamic_allocation(master: str, configuration: Configuration) -> dict[str, str]:
    """Return the settings with which idle executors are released, and requested again when tasks wait. No
    cluster needs a shuffle service for it: what a released executor had is computed again."""
    if options.DYNAMIC_ALLOCATION.read_choice(configuration, ("on", "off")) == "off":
        return {}
    if master.startswith("local"):
        raise ProgramError(
            f"{options.DYNAMIC_ALLOCATION.key}=on needs a cluster; with the master '{master}' there is only "
            "one executor, this machine. Leave it out."
        )
    least = options.MIN_EXECUTORS.read(configuration)
    most = options.MAX_EXECUTORS.read(configuration)
    if least < 0 or (most and most < max(least, 1)):
        raise ProgramError(
            f"{options.MIN_EXECUTORS.key}={least} and {options.MAX_EXECUTORS.key}={most} do not fit "
            "together: the minimum must be neither negative nor above the maximum."
        )
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        # All executors hold shuffle files of the newest batch, and anchors (`placement.py`).
        "spark.dynamicAllocation.shuffleTracking.timeout": _IDLE,
        "spark.dynamicAllocation.cachedExecutorIdleTimeout": _IDLE,
        "spark.dynamicAllocation.minExecutors": str(least),
    }
    if most:
        settings["spark.dynamicAllocation.maxExecutors"] = str(most)
    return settings


def _yarn(known: Known, cores: int | None, environment: Mapping[str, str]) -> dict[str, str]:
    if not (environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR")):
        raise SetupError(
            "The master is yarn, but nothing says where YARN is: set HADOOP_CONF_DIR to the folder with "
            "yarn-site.xml and core-site.xml."
        )
    return {"spark.submit.deployMode": "client", **_executors(known, cores)}


def _kubernetes(
    master: str,
    configuration: Configuration,
    known: Known,
    cores: int | None,
    environment: Mapping[str, str],
) -> dict[str, str]:
    if not master.removeprefix("k8s://").removeprefix("https://").removeprefix("http://"):
        raise ProgramError(
            f"The Spark master '{master}' names no host. Use k8s://https://HOST:PORT."
        )
    image = known(IMAGE) or options.KUBERNETES_IMAGE.read(configuration)
    if not image:
        raise ProgramError(
            "The master is Kubernetes, but there is no image for the executors: set "
            f"{options.KUBERNETES_IMAGE.key} (deploy/Dockerfile makes one)."
        )
    settings = {IMAGE: str(image), "spark.submit.deployMode": "client", **_executors(known, cores)}
    if environment.get(POD_IP_VARIABLE):
        # Executors must find the driver, and other pods do not know a pod by its name.
        settings["spark.driver.host"] = environment[POD_IP_VARIABLE]
        settings["spark.driver.bindAddress"] = "0.0.0.0"
    if environment.get(POD_NAME_VARIABLE):
        # Kubernetes then removes the executors when the driver's pod is gone.
        settings["spark.kubernetes.driver.pod.name"] = environment[POD_NAME_VARIABLE]
    if _NAMESPACE_FILE.exists():
        settings["spark.kubernetes.namespace"] = _NAMESPACE_FILE.read_text().strip()
    return settings


def _executors(known: Known, cores: int | None) -> dict[str, str]:
    # State lives in Python processes beside the executor's JVM, so these need as much memory as the JVM.
    settings = {"spark.executor.memoryOverheadFactor": "1.0"}
    each = int(known("spark.executor.cores") or 1)
    if cores is not None:
        settings["spark.executor.instances"] = str(-(-cores // each))
    return settings
