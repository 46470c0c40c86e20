"""Kafka, with PyFlink's names. Needs the extra `kafka`: pip install 'millpond[kafka]'."""

from millpond.datastream.connectors.base import DeliveryGuarantee
from millpond.datastream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from millpond.datastream.connectors.kafka.records import (
    ConsumerRecord,
    KafkaRecordDeserializationSchema,
)
from millpond.datastream.connectors.kafka.sink import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaSink,
    KafkaSinkBuilder,
    KafkaTopicSelector,
)
from millpond.datastream.connectors.kafka.source import KafkaSource, KafkaSourceBuilder
from millpond.missing import module_getattr

__all__ = [
    "ConsumerRecord",
    "DeliveryGuarantee",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
]

__getattr__ = module_getattr(__name__)
