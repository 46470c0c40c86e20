"""Which operators may share a slot in Flink. Here it only shows in the plan."""

from __future__ import annotations

from millpond.missing import MissingMethods, module_getattr


class SlotSharingGroup(MissingMethods):
    """A named group of operators. It only shows in the plan: Spark decides where operators run."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get_name(self) -> str:
        """Return the name of the group."""
        return self._name

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Return a builder for a group with this name."""
        return SlotSharingGroup.Builder(name)

    class Builder:
        """Builds a group. Unlike Flink's, it takes no resources: set Spark's executor resources instead."""

        def __init__(self, name: str) -> None:
            self._name = name

        def build(self) -> SlotSharingGroup:
            """Return the group."""
            return SlotSharingGroup(self._name)


__getattr__ = module_getattr(__name__)
