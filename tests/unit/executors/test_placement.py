"""On which machines partitions are to be: as few moves as possible, all machines used alike (E42)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millpond.executors.spark.executor_list import host_and_port
from millpond.executors.spark.placement import spread

machines = st.sampled_from(["a", "b", "c", "d"])
rooms = st.dictionaries(machines, st.integers(1, 4), max_size=4)
places = st.lists(st.none() | machines, max_size=20)


def test_partitions_are_spread_by_room() -> None:
    assert Counter(spread([None] * 6, {"a": 2, "b": 1})) == {"a": 4, "b": 2}


def test_partitions_of_a_lost_machine_go_where_there_is_room() -> None:
    assert spread(["a", "lost", "b", "lost"], {"a": 2, "b": 2}) == ["a", "a", "b", "b"]


def test_only_what_is_too_much_moves_to_an_additional_machine() -> None:
    assert spread(["a", "a", "a", "a"], {"a": 1, "b": 1}) == ["a", "a", "b", "b"]


def test_a_partition_does_not_move_to_be_the_odd_one_out_elsewhere() -> None:
    assert spread(["a", "a", "b"], {"a": 1, "b": 1}) == ["a", "a", "b"]
    assert spread(["a", "b", "b"], {"a": 1, "b": 1}) == ["a", "b", "b"]


def test_without_machines_there_is_no_preference() -> None:
    assert spread(["a", None], {}) == [None, None]


@given(places, rooms)
def test_nobody_gets_more_than_a_share_rounded_up(
    current: list[str | None], room: dict[str, int]
) -> None:
    wanted = spread(current, room)
    assert len(wanted) == len(current)
    load = Counter(wanted)
    for machine, tasks in room.items():
        assert load[machine] <= -(-len(current) * tasks // sum(room.values()))


@given(places, rooms)
def test_partitions_that_are_spread_stay_where_they_are(
    current: list[str | None], room: dict[str, int]
) -> None:
    wanted = spread(current, room)
    assert spread(wanted, room) == wanted


def test_address_of_an_executor_that_has_just_come_has_no_port_yet() -> None:
    assert host_and_port("127.0.0.2:7077") == ("127.0.0.2", 7077)
    assert host_and_port("127.0.0.2") == ("127.0.0.2", 0)
    assert host_and_port("[::1]:7077") == ("[::1]", 7077)
