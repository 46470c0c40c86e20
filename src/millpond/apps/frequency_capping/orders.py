"""Carries out the orders that people give to the job (control.py), for each user whom they concern."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from millpond.apps.frequency_capping.control import Order
from millpond.apps.frequency_capping.records import Arrival
from millpond.apps.frequency_capping.rulebook import Message, RulePlan, read_plan
from millpond.apps.frequency_capping.rules import Rule
from millpond.apps.frequency_capping.times import unpack
from millpond.apps.frequency_capping.user_state import (
    AGENDA,
    ANSWERS,
    CAP,
    CAPPED,
    FORGET,
    MEMBERS,
    RULES,
    SEEN,
    UNCAP,
    VIEWS,
    AgendaItem,
    Change,
    Hold,
    member_of,
)
from millpond.apps.frequency_capping.windows import NEVER
from millpond.datastream import KeyedBroadcastProcessFunction, OutputTag
from millpond.datastream.state import MapState, ValueState


class ObeysOrders(KeyedBroadcastProcessFunction[str, Arrival, Message, Change]):
    """The part of CapUsers that carries out orders."""

    _agenda: MapState[int, tuple[AgendaItem, ...]]
    _views: MapState[str, bytes]
    _capped: MapState[str, Hold]
    _members: MapState[str, tuple[str, ...]]
    _seen: MapState[str, int]
    _sweep_at: ValueState[int]
    _rules: Mapping[str, Rule]
    _changes: list[Change]

    def _use(self, plan: RulePlan, now_ms: int) -> None:
        raise NotImplementedError

    def _taken(self) -> list[Change] | None:
        raise NotImplementedError

    def _obey(
        self, order: Order, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterator[Change | tuple[OutputTag, object]]:
        """Carry out an order (control.py). Every key group is asked; the one that has the user answers."""
        now_ms = ctx.current_watermark()
        plan = read_plan(ctx.get_broadcast_state(RULES))
        self._use(plan, now_ms)
        if "republish" in order:
            ctx.apply_to_keyed_state(MEMBERS, lambda user, _: self._republish(user, now_ms))
        elif "forget" in order:
            for descriptor in (AGENDA, SEEN, VIEWS, CAPPED, MEMBERS):
                ctx.apply_to_keyed_state(
                    descriptor,
                    lambda user, _: self._forget(user, now_ms) if user == order["user"] else None,
                )
        else:
            answers: list[str] = []
            for descriptor in (AGENDA, VIEWS, CAPPED):
                ctx.apply_to_keyed_state(
                    descriptor,
                    lambda user, _: (
                        answers.append(self._explain(order, plan.begun(now_ms), now_ms))
                        if user == order["user"] and not answers
                        else None
                    ),
                )
            for answer in answers:
                yield ANSWERS, answer
        yield from self._taken() or ()

    def _republish(self, user: str, now_ms: int) -> None:
        for member, rules in self._members.items():
            self._changes.append((user, member, CAP, now_ms, rules[0]))

    def _forget(self, user: str, now_ms: int) -> None:
        """Erase a user. Timers that are left will find nothing to do."""
        for member in list(self._members.keys()):
            self._changes.append((user, member, UNCAP, now_ms, FORGET))
        self._changes.append((user, "", FORGET, now_ms, FORGET))
        for state in (self._agenda, self._views, self._capped, self._members, self._seen):
            state.clear()
        self._sweep_at.clear()

    def _explain(self, order: Order, plan: RulePlan, now_ms: int) -> str:
        pairs = []
        for pair, packed in self._views.items():
            times = unpack(packed)
            name, _, found = pair.partition("\x00")
            rule = self._rules.get(name)
            if rule is None or order.get("ad") not in (None, found):
                continue
            counting = [time_ms for time_ms in times if rule.window.expiry(time_ms) > now_ms]
            held = self._capped.get(pair)
            if held is None and not counting:
                continue
            released_ms = None if held is None else rule.capped_until(times)
            pairs.append(
                {
                    "rule": name,
                    "member": member_of(rule, pair),
                    "views": counting,
                    "limit": rule.limit,
                    "capped_since": None if held is None else held[0],
                    "released_at": released_ms if released_ms != NEVER else None,
                    "rule_gone_until": rule.gone_until_ms,
                }
            )
        change_ms = plan.next_message_ms
        waiting = [item for _, work in self._agenda.items() for item in work if type(item) is tuple]
        return json.dumps(
            {
                "id": order["explain"],
                "user": order["user"],
                "event_time": now_ms,
                "pairs": sorted(pairs, key=lambda pair: (pair["rule"], pair["member"])),
                "not_counted_yet": len(waiting),
                "rules_change_at": None if change_ms == NEVER else change_ms,
            }
        )
