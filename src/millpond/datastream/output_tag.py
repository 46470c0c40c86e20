"""The name and type of a side output."""

from __future__ import annotations

from millpond.common.typeinfo import TypeLike, to_type_info
from millpond.errors import ProgramError


class OutputTag:
    """Names a side output: `yield tag, value` in a process function sends `value` there.

    `DataStream.get_side_output(tag)` reads it. Tags with the same id are equal.
    """

    def __init__(self, tag_id: str, type_info: TypeLike = None) -> None:
        if not tag_id:
            raise ProgramError("An OutputTag needs a name that is not empty.")
        self.tag_id = tag_id
        self.type_info = to_type_info(type_info)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"
