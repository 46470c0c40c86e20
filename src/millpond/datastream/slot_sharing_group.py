"""Which operators may run in the same place."""

from __future__ import annotations

from millpond.missing import MissingMethods, module_getattr


class SlotSharingGroup(MissingMethods):
    """A named group. Spark's executors are the slots; the group is shown in the plan."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get_name(self) -> str:
        return self._name

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        return SlotSharingGroup.Builder(name)

    class Builder:
        def __init__(self, name: str) -> None:
            self._name = name

        def build(self) -> SlotSharingGroup:
            return SlotSharingGroup(self._name)


__getattr__ = module_getattr(__name__)
