"""Which state kinds there are."""

from __future__ import annotations

from typing import Any

from millpond.datastream.state import StateKind
from millpond.errors import CorruptDataError, UnsupportedFeatureError
from millpond.state.kinds.aggregating import AggregatingKind
from millpond.state.kinds.column import ColumnKind
from millpond.state.kinds.kind import StateKindSpec
from millpond.state.kinds.list import ListKind
from millpond.state.kinds.map import MapKind
from millpond.state.kinds.reducing import ReducingKind
from millpond.state.kinds.value import ValueKind

# Follows the kind of a state whose values rest with their times, in change logs and savepoints.
TTL_MARK = "+ttl"
AnySpec = StateKindSpec[Any, Any]
_SPECS: dict[str, AnySpec] = {}


def register(spec: AnySpec) -> None:
    """Make a kind known. Raises ValueError if there is one of this name."""
    if spec.kind.value in _SPECS:
        raise ValueError(f"There is a state kind '{spec.kind.value}' already.")
    _SPECS[spec.kind.value] = spec


for _spec in (
    ValueKind(),
    ListKind(),
    MapKind(),
    ReducingKind(),
    AggregatingKind(),
    ColumnKind(),
):
    register(_spec)


def spec_of(kind: StateKind) -> AnySpec:
    """Return the specification of a kind. Raises UnsupportedFeatureError if it has none."""
    spec = _SPECS.get(kind.value)
    if spec is None:
        raise UnsupportedFeatureError(
            f"There is no state kind '{kind.value}'; there are {', '.join(_SPECS)}."
        )
    return spec


def stored_kind(text: str, where: str) -> tuple[AnySpec, bool]:
    """Return the specification of a kind as `kind_text` wrote it, and whether values rest with their times.

    Raises CorruptDataError, naming `where` the text stands, if there is no such kind.
    """
    name = text.removesuffix(TTL_MARK)
    spec = _SPECS.get(name)
    if spec is None:
        raise CorruptDataError(
            f"{where}: unknown kind of state '{text}'; this release knows {', '.join(_SPECS)}."
        )
    return spec, name != text


def kind_text(kind: StateKind, timed: bool) -> str:
    """Return how logs and savepoints write a kind. `timed`: values rest with their times."""
    return spec_of(kind).kind.value + (TTL_MARK if timed else "")
