"""The Kafka client library, and settings for it. Needs the extra `kafka` (confluent-kafka)."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from millpond.errors import ProgramError, SetupError

# Settings of Flink's connector, or of Java's clients, that have no meaning here.
_NOT_FOR_THE_CLIENT = {
    "auto.offset.reset",
    "client.id.prefix",
    "commit.offsets.on.checkpoint",
    "enable.auto.commit",
    "group.id",
    "key.deserializer",
    "key.serializer",
    "partition.discovery.interval.ms",
    "transactional.id",
    "value.deserializer",
    "value.serializer",
}


def client_module(name: str = "") -> ModuleType:
    """Return confluent_kafka or a module of it; raise SetupError if it is not installed."""
    try:
        return importlib.import_module(f"confluent_kafka{name}")
    except ImportError:
        raise SetupError(
            "Kafka needs the package confluent-kafka: pip install 'millpond[kafka]', on every machine of the "
            "cluster."
        ) from None


def make_client(kind: str, servers: str, properties: dict[str, str], **extra: object) -> Any:
    """Return a Consumer, Producer or admin.AdminClient; raise ProgramError if it does not accept the
    settings."""
    given = {key: value for key, value in properties.items() if key not in _NOT_FOR_THE_CLIENT}
    module, _, name = kind.rpartition(".")
    factory = getattr(client_module(f".{module}" if module else ""), name)
    settings = {"bootstrap.servers": servers, "log_level": 0, **extra, **given}
    try:
        return factory(settings)
    except client_module().KafkaException as problem:
        raise ProgramError(f"Kafka's client does not accept the settings: {problem}.") from None
