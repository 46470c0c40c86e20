"""Redis: a sink, and look-ups from functions. Needs the extra `redis`: pip install 'millpond[redis]'."""

from millpond.datastream.connectors.redis.connection import Command
from millpond.datastream.connectors.redis.lookup import RedisLookup
from millpond.datastream.connectors.redis.sink import RedisSink

__all__ = ["Command", "RedisLookup", "RedisSink"]
