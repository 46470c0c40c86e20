"""A real Kafka for the tests of this folder: one broker for all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.servers import KafkaServer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = KafkaServer(tmp_path_factory.mktemp("kafka") / "broker")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    kafka.create(name, 2)
    return name
