"""Opens the kind of leadership that the settings ask for. The keys are Flink's."""

from __future__ import annotations

from pathlib import Path

from millpond.common.configuration import Configuration
from millpond.common.options import Option
from millpond.dispatcher.leadership import FileLeadership, Leadership
from millpond.errors import ProgramError

HA_TYPE = Option(
    "high-availability.type",
    "none",
    "how dispatchers choose a leader; none: by a lock in the storage folder that they share; zookeeper",
)
HA_QUORUM = Option(
    "high-availability.zookeeper.quorum", None, "ZooKeeper's servers: host:port,host:port,..."
)
HA_ROOT = Option(
    "high-availability.zookeeper.path.root",
    "/millpond",
    "the ZooKeeper node below which everything is kept",
)
HA_CLUSTER_ID = Option(
    "high-availability.cluster-id",
    "default",
    "dispatchers with the same cluster id stand in for each other",
)
HA_SESSION_TIMEOUT_MS = Option(
    "high-availability.zookeeper.client.session-timeout",
    10_000,
    "milliseconds without a sign of life after which ZooKeeper lets another dispatcher lead",
)


def open_leadership(configuration: Configuration, storage: Path) -> Leadership:
    """Return the leadership that `high-availability.type` names, not started yet. `storage` is the
    dispatchers' storage folder. Raise ProgramError if settings are missing or wrong."""
    kind = HA_TYPE.read_choice(configuration, ("none", "zookeeper"))
    if kind == "none":
        return FileLeadership(storage / "leadership")
    hosts = HA_QUORUM.read(configuration)
    if not hosts:
        raise ProgramError(
            f"{HA_TYPE.key} is zookeeper, so {HA_QUORUM.key} must name ZooKeeper's servers: "
            "host:port,host:port,..."
        )
    from millpond.dispatcher.zookeeper_leadership import ZooKeeperLeadership

    return ZooKeeperLeadership(
        hosts,
        HA_ROOT.read(configuration),
        HA_CLUSTER_ID.read(configuration),
        HA_SESSION_TIMEOUT_MS.read(configuration) / 1000,
    )
