"""Two streams for one function: connected, or one of them broadcast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millpond.common.typeinfo import TypeLike, to_type_info
from millpond.datastream.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
    RuntimeContext,
)
from millpond.datastream.state import MapStateDescriptor
from millpond.datastream.stream_graph import OperatorKind
from millpond.errors import ProgramError

if TYPE_CHECKING:
    from millpond.datastream.data_stream import DataStream


class ConnectedStreams:
    """Two streams, possibly of different types, for a function that sees both; made by
    `DataStream.connect`."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        if stream1._environment is not stream2._environment:
            raise ProgramError("Only streams of the same environment can be connected.")
        if stream1.is_keyed != stream2.is_keyed:
            raise ProgramError(
                "connect needs two keyed streams or two streams without a key: call key_by on both, with "
                "keys of the same type."
            )
        self.stream1 = stream1
        self.stream2 = stream2

    @property
    def _keyed(self) -> bool:
        return self.stream1.is_keyed

    def key_by(
        self,
        key_selector1: Callable[[Any], Any] | KeySelector,
        key_selector2: Callable[[Any], Any] | KeySelector,
        key_type: TypeLike = None,
    ) -> ConnectedStreams:
        """Key both streams, so that records with equal keys meet in the same state."""
        return ConnectedStreams(
            self.stream1._values().key_by(key_selector1, key_type),
            self.stream2._values().key_by(key_selector2, key_type),
        )

    def map(self, func: CoMapFunction, output_type: TypeLike = None) -> DataStream:
        """Apply `map1` to the records of the first stream and `map2` to those of the second."""
        if not isinstance(func, CoMapFunction):
            raise TypeError(f"map on connected streams takes a CoMapFunction, not {func!r}")
        return self._add(OperatorKind.CO_MAP, "Co-Map", func, output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: TypeLike = None) -> DataStream:
        """Apply `flat_map1` to the records of the first stream and `flat_map2` to those of the second."""
        if not isinstance(func, CoFlatMapFunction):
            raise TypeError(
                f"flat_map on connected streams takes a CoFlatMapFunction, not {func!r}"
            )
        return self._add(OperatorKind.CO_FLAT_MAP, "Co-Flat Map", func, output_type)

    def process(
        self,
        func: CoProcessFunction | KeyedCoProcessFunction,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Apply a process function with two inputs: a KeyedCoProcessFunction if the streams are keyed,
        else a CoProcessFunction."""
        expected = KeyedCoProcessFunction if self._keyed else CoProcessFunction
        if not isinstance(func, expected):
            raise TypeError(
                f"process on these connected streams takes a {expected.__name__}, not "
                f"{type(func).__name__}"
            )
        if self._keyed:
            return self._add(OperatorKind.KEYED_CO_PROCESS, "KEYED CO-PROCESS", func, output_type)
        return self._add(OperatorKind.CO_PROCESS, "CO-PROCESS", func, output_type)

    def _add(
        self, kind: OperatorKind, name: str, function: object, output_type: TypeLike
    ) -> DataStream:
        return _two_inputs(self.stream1, self.stream2, kind, name, function, output_type)


@dataclass
class BroadcastOperation(Function):
    """A broadcast function together with the broadcast states it may use."""

    function: (
        BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any]
    )
    descriptors: tuple[MapStateDescriptor, ...]

    def open(self, runtime_context: RuntimeContext) -> None:
        self.function.open(runtime_context)

    def close(self) -> None:
        self.function.close()


class BroadcastStream:
    """A stream whose records go to every subtask, to be kept in broadcast state.

    Made by `stream.broadcast(descriptor)`; `other_stream.connect(...)` connects it.
    """

    def __init__(self, input_stream: DataStream, *descriptors: MapStateDescriptor) -> None:
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise TypeError(
                    f"broadcast takes MapStateDescriptors, not {type(descriptor).__name__}"
                )
            descriptor.refuse_queryable("Broadcast state")
            if descriptor.ttl_config is not None:
                raise ProgramError(
                    f"Broadcast state '{descriptor.name}' cannot have a time to live, because its copies "
                    "would differ. Remove entries in process_broadcast_element."
                )
        names = [descriptor.name for descriptor in descriptors]
        if len(set(names)) < len(names):
            raise ProgramError(f"Two broadcast states have the same name: {names}.")
        self.input_stream = input_stream
        self.broadcast_state_descriptors = descriptors


class BroadcastConnectedStream:
    """A stream, keyed or not, connected with a broadcast stream."""

    def __init__(self, non_broadcast_stream: DataStream, broadcast_stream: BroadcastStream) -> None:
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = broadcast_stream.broadcast_state_descriptors

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any]
        | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: TypeLike = None,
    ) -> DataStream:
        """Apply a KeyedBroadcastProcessFunction if the first stream is keyed, else a
        BroadcastProcessFunction."""
        keyed = self.non_broadcast_stream.is_keyed
        expected = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(func, expected):
            raise TypeError(
                f"process on a {'keyed ' if keyed else ''}stream connected with a broadcast stream takes "
                f"a {expected.__name__}, not {type(func).__name__}"
            )
        kind = OperatorKind.KEYED_BROADCAST_PROCESS if keyed else OperatorKind.BROADCAST_PROCESS
        return _two_inputs(
            self.non_broadcast_stream,
            self.broadcast_stream.input_stream,
            kind,
            "KEYED BROADCAST PROCESS" if keyed else "BROADCAST PROCESS",
            BroadcastOperation(func, self.broadcast_stream.broadcast_state_descriptors),
            output_type,
        )


def _two_inputs(
    stream1: DataStream,
    stream2: DataStream,
    kind: OperatorKind,
    name: str,
    function: object,
    output_type: TypeLike,
) -> DataStream:
    if stream1._environment is not stream2._environment:
        raise ProgramError("Only streams of the same environment can be connected.")
    inputs = [
        replace(edge, input_index=index)
        for index, stream in enumerate((stream1, stream2))
        for edge in stream._edges
    ]
    return stream1._values()._result_of(kind, name, function, inputs, to_type_info(output_type))
