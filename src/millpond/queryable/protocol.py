"""What a client and the server of a slot say to each other over TCP.

Every message, version 1 (little endian):

    offset  size  content
    0       4     length of what follows
    4       2     magic "MQ"
    6       1     protocol version (1)
    7       1     kind, see MessageKind
    8       4     number of the request; its answer has the same. Answers come in any order
    12      ...   payload: JSON in UTF-8

The first message of a client is HELLO with the server's token; anything else, or a wrong token, ends the
connection. Nothing is ever unpickled. See `json_codec.py` for keys and values as JSON.
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Any, NamedTuple

MAGIC = b"MQ"
VERSION = 1
_HEADER = struct.Struct("<I2sBBI")
HEADER_BYTES = _HEADER.size
_AFTER_LENGTH = HEADER_BYTES - 4
MAX_HELLO_BYTES = 1 << 10
MAX_REQUEST_BYTES = 1 << 20
MAX_ANSWER_BYTES = 64 << 20
MAX_KEYS = 10_000  # in one request
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class MessageKind(IntEnum):
    """The kinds of messages, who sends them, and their content."""

    HELLO = 1  # client: {"token"}
    WELCOME = 2  # server: {"generation", "partition", "partitions"}
    GET = 3  # client: {"state", "keys": [...]}, and "entry" for one entry of a map
    ANSWER = 4  # server: {"epoch", "results": [[status, what], ...]} in the order of the keys
    REFUSED = 5  # server: {"reason"}; it ends the connection


class Status(IntEnum):
    """What became of a key, and what stands beside it in an answer."""

    FOUND = 0  # what: the value
    NOT_FOUND = 1  # what: null
    RETRY = 2  # what: why there is no answer now
    ELSEWHERE = 3  # what: why this server is not the one to ask
    UNKNOWN_STATE = 4  # what: what there is
    FAILED = 5  # what: what is wrong


class ProtocolError(Exception):
    """What came is not this protocol, or too large."""


class Message(NamedTuple):
    """A message without its header."""

    kind: MessageKind
    number: int
    content: Any


def encode(kind: MessageKind, number: int, content: object) -> bytes:
    """Return the bytes of a message."""
    payload = _to_json(content).encode()
    return _HEADER.pack(len(payload) + _AFTER_LENGTH, MAGIC, VERSION, kind, number) + payload


class Decoder:
    """Makes messages of bytes as they come. `limit` is the largest size of one message; it may be changed."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes in."""
        self._buffer += data

    def next(self) -> Message | None:
        """Return the next message, or None if it is not complete. Raises ProtocolError if what is there
        cannot become one."""
        buffer = self._buffer
        if len(buffer) < HEADER_BYTES:
            return None
        length, magic, version, kind, number = _HEADER.unpack_from(buffer)
        if magic != MAGIC:
            raise ProtocolError("this is not Millpond's protocol for look-ups")
        if version != VERSION:
            raise ProtocolError(f"protocol version {version} is not known here, only {VERSION}")
        end = length + 4
        if length < _AFTER_LENGTH or end > self.limit:
            raise ProtocolError(f"a message of {end} bytes; at most {self.limit} are allowed")
        if len(buffer) < end:
            return None
        payload = bytes(buffer[HEADER_BYTES:end])
        del buffer[:end]
        try:
            return Message(MessageKind(kind), number, json.loads(payload))
        except (ValueError, RecursionError) as problem:
            raise ProtocolError(f"a message that cannot be read: {problem}") from None
