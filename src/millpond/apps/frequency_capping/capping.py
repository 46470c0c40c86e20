"""Counts the views of a user, and says when something is capped and when it is released.

What is capped at event time T, the watermark, depends only on the views that have come and on the rules in
force: neither on the order of views nor on what was capped before. A view counts if its time <= T < its
expiry. A pair (a rule and an id that it counts) is capped while at least `limit` of its views count, and
during the cool-down after each view that reached the limit. Redis holds *members*, each a level and an id. A
member is capped while any rule caps it: the strictest rule wins.

A view arrives before event time has reached it. If event time will reach it before the horizon (see
`event_time_horizon`), nothing but other views can come in between. It is then an *early* view: it goes to its
pairs at once, and a pair is looked at when it may be capped. So most views need neither an entry in the
agenda nor a timer. Views that are further ahead wait in the agenda. When the horizon moves, there are no
early views."""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from millpond.apps.frequency_capping.control import is_order
from millpond.apps.frequency_capping.orders import ObeysOrders
from millpond.apps.frequency_capping.records import Arrival, RecordFormat
from millpond.apps.frequency_capping.rulebook import (
    Message,
    Rulebook,
    RulePlan,
    read_plan,
    tell,
)
from millpond.apps.frequency_capping.rules import Rule, RuleError, TimesToLive
from millpond.apps.frequency_capping.times import (
    count,
    first,
    last,
    one_time,
    pack,
    unpack,
    with_time,
    without_time,
)
from millpond.apps.frequency_capping.user_state import (
    AGENDA,
    CAP,
    CAPPED,
    LATE,
    MEMBERS,
    RULES,
    SEEN,
    STILL,
    UNCAP,
    VIEWS,
    AgendaItem,
    Change,
    View,
    member_of,
    name_in,
    with_ttl,
)
from millpond.apps.frequency_capping.windows import NEVER
from millpond.common import Types
from millpond.common.time import MIN_TIMESTAMP
from millpond.datastream import (
    EventTimeHorizonListener,
    KeyedBroadcastProcessFunction,
    OutputTag,
    RuntimeContext,
)
from millpond.datastream.functions import Results
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.timerservice import TimerService

_CHANGE = None  # an item of the agenda: other rules are in force from now on
_WAITS = MIN_TIMESTAMP


class CapUsers(ObeysOrders, EventTimeHorizonListener):
    """Turns the views of users, and messages with rules or orders, into changes: what is capped or released.

    State that is no longer needed is removed in time. If `lives.state_ms` is set, state also has an
    event-time TTL as a safety net (P4)."""

    _timers: TimerService  # set for each key group, before it is used

    def __init__(
        self, record_format: RecordFormat | None = None, lives: TimesToLive | None = None
    ) -> None:
        self._format = record_format or RecordFormat()
        self._lives = lives or TimesToLive()
        self._tells_still = self._lives.redis_ms is not None

    def open(self, runtime_context: RuntimeContext) -> None:
        state = runtime_context.get_map_state
        self._agenda = state(AGENDA)
        kept = [
            state(with_ttl(descriptor, self._lives.state_ms))
            for descriptor in (VIEWS, CAPPED, MEMBERS, SEEN)
        ]
        self._views, self._capped, self._members, self._seen = kept
        counter = runtime_context.get_metrics_group().counter
        self._counters = {n: counter(n) for n in ("late", "duplicates", "caps", "uncaps")}
        self._sweep_at = runtime_context.get_state(ValueStateDescriptor("next sweep", Types.LONG()))
        self._fields = self._format.reader().fields
        self._changes: list[Change] = []
        self._horizon_ms = MIN_TIMESTAMP
        self._early: dict[tuple[str, str], View] = {}  # (user, impression) -> early view
        self._use(RulePlan(Rulebook({})), MIN_TIMESTAMP)

    def event_time_horizon(
        self, until_ms: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        self._timers = ctx.timer_service()
        self._horizon_ms = until_ms
        self._early.clear()
        self._use(read_plan(ctx.get_broadcast_state(RULES)), ctx.current_watermark())

    # --- views -----------------------------------------------------------------------------------

    def process_element(
        self, value: Arrival, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Results[Change]:
        now_ms = ctx.current_watermark()
        if now_ms >= self._until_ms:
            self._use(read_plan(ctx.get_broadcast_state(RULES)), now_ms)
        self._user, impression, time_ms, event, ad, more = value
        if self._sweep_at.value() is None:
            self._plan_sweep(max(now_ms, time_ms))
        if time_ms > now_ms:
            if time_ms > self._early_until_ms:
                self._wait(value[1:], now_ms)
            elif impression is None:
                self._take_early(time_ms, event, ad, more, now_ms)
            else:
                self._take_impression(value[1:], now_ms)
            return None
        if not self._count(value[1:], now_ms):
            self._counters["late"].inc()
            return [(LATE, value)]
        return self._taken()

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Results[Change]:
        self._user = ctx.get_current_key()
        if timestamp >= self._until_ms:
            self._use(read_plan(ctx.get_broadcast_state(RULES)), timestamp)
        work = self._agenda.get(timestamp)
        if work is not None:
            self._agenda.remove(timestamp)
            if _CHANGE in work:
                self._judge_anew(self._changed, timestamp)
            # Views come first: one at the very moment of a release already counts.
            for item in work:
                if type(item) is tuple:
                    self._count(item, timestamp)
            for item in work:
                if type(item) is str:
                    self._look_at(item, timestamp)
        if self._sweep_at.value() == timestamp:
            self._sweep(timestamp)
        return self._taken()

    def _use(self, plan: RulePlan, now_ms: int) -> None:
        version = plan.version_at(now_ms)
        self._until_ms = version.until_ms
        self._book: Rulebook = version.book
        self._rules = self._book.rules
        self._changed = version.changed
        self._early_until_ms = min(self._horizon_ms, version.until_ms - 1)

    def _taken(self) -> list[Change] | None:
        if not self._changes:
            return None
        changes, self._changes = self._changes, []
        return changes

    def _schedule(self, time_ms: int, item: AgendaItem) -> None:
        waiting = self._agenda.get(time_ms)
        if waiting is None:
            self._agenda.put(time_ms, (item,))
            self._timers.register_event_time_timer(time_ms)
        elif type(item) is tuple or item not in waiting:
            self._agenda.put(time_ms, (*waiting, item))

    # --- early views -----------------------------------------------------------------------------

    def _take_early(self, time_ms: int, event: str, ad: str, more: str | None, now_ms: int) -> None:
        views = self._views
        for rule, found in self._counted_by(time_ms, event, ad, more):
            pair = rule.pair_of(found)
            packed = views.get(pair)
            packed = one_time(time_ms) if packed is None else with_time(packed, time_ms)
            if len(packed) >= rule.limit_size:
                packed = self._with_enough(rule, pair, packed, now_ms)
            views.put(pair, packed)
        if self._until_ms < NEVER:
            self._await_change(self._until_ms)

    def _with_enough(self, rule: Rule, pair: str, packed: bytes, now_ms: int) -> bytes:
        """Schedule when a pair with this many views is capped, and return the times that are worth
        keeping."""
        if self._capped.get(pair) is None:
            times = self._those_that_matter(rule, unpack(packed), now_ms)
            self._look_when_capped(rule, pair, times, now_ms)
            return pack(times)
        if rule.matters_until(first(packed)) <= now_ms or count(packed) > 2 * rule.most_times:
            return pack(self._those_that_matter(rule, unpack(packed), now_ms))
        return packed

    def _take_impression(self, view: View, now_ms: int) -> None:
        """Take a view with an impression: early, unless there is another record of the same impression."""
        impression, time_ms, event, ad, more = view
        name = f"{event}\x00{impression}"
        first_ms = self._seen.get(name)
        if first_ms is not None:
            if first_ms > now_ms:
                self._take_back(name, now_ms)
            self._wait(view, now_ms)
            return
        self._seen.put(name, time_ms)
        self._early[self._user, name] = view
        self._take_early(time_ms, event, ad, more, now_ms)

    def _take_back(self, name: str, now_ms: int) -> None:
        """Make an early view wait after all, because another record of its impression may count before it."""
        view = self._early.pop((self._user, name))
        _, time_ms, event, ad, more = view
        for rule, found in self._counted_by(time_ms, event, ad, more):
            pair = rule.pair_of(found)
            left = without_time(self._views.get(pair) or b"", time_ms)
            if left:
                self._views.put(pair, left)
            else:
                self._views.remove(pair)
        self._seen.remove(name)
        self._wait(view, now_ms)

    def _wait(self, view: View, now_ms: int) -> None:
        """Make a view wait until event time has reached it."""
        impression, time_ms, event, _, _ = view
        if impression is not None:
            name = f"{event}\x00{impression}"
            first_ms = self._seen.get(name)
            if first_ms is None:
                self._seen.put(name, _WAITS)
            elif first_ms > now_ms:
                self._take_back(name, now_ms)
        self._schedule(time_ms, view)

    def _look_when_capped(self, rule: Rule, pair: str, times: tuple[int, ...], now_ms: int) -> None:
        """Schedule a look at a pair that is not capped, for the first of its coming views that caps it."""
        if not rule.enabled:
            return
        expiry, limit = rule.window.expiry, rule.limit
        for index in range(max(limit - 1, bisect.bisect_right(times, now_ms)), len(times)):
            if expiry(times[index - limit + 1]) > times[index]:
                self._schedule(times[index], pair)
                return

    # --- views that count now --------------------------------------------------------------------

    def _counted_by(
        self, time_ms: int, event: str, ad: str, more: str | None
    ) -> list[tuple[Rule, str]]:
        """Return the rules that count a view, each with the id for which it counts."""
        counted: list[tuple[Rule, str]] = []
        fields: dict[str, Any] | None = None
        for rule in self._book.by_event.get(event, ()):
            if time_ms < rule.from_ms:
                continue
            if not rule.needs_fields:
                counted.append((rule, ad))
                continue
            if fields is None:
                fields = self._fields(ad, more)
                if more is None:
                    fields |= {"user_no": self._user, "log_time": time_ms}
                fields.setdefault("event", event)
            found = rule.id_in(fields)
            if found is not None:
                counted.append((rule, found))
        return counted

    def _count(self, view: View, now_ms: int) -> bool:
        """Count a view; return False if it is too late for all rules that would have counted it."""
        impression, time_ms, event, ad, more = view
        if impression is not None and self._has_seen(f"{event}\x00{impression}", time_ms, now_ms):
            self._counters["duplicates"].inc()
            return True
        counted = expired = False
        for rule, found in self._counted_by(time_ms, event, ad, more):
            if rule.matters_until(time_ms) <= now_ms:
                expired = True
                continue
            counted = True
            pair = rule.pair_of(found)
            before = self._views.get(pair)
            times = (time_ms,) if before is None else unpack(with_time(before, time_ms))
            self._keep(rule, pair, times, now_ms)
        return counted or not expired

    def _has_seen(self, impression: str, time_ms: int, now_ms: int) -> bool:
        """Return True if this is another record of an impression; remember the impression if it is not.
        (`impression` includes the event, because a click has the impression of its view.)"""
        first_ms, book = self._seen.get(impression), self._book
        if first_ms is not None and first_ms > now_ms:
            self._take_back(impression, now_ms)
        elif (
            first_ms is not None
            and first_ms != _WAITS
            and first_ms >= book.seen_from_ms
            and abs(time_ms - first_ms) < book.remembered_ms
            and now_ms < first_ms + book.remembered_ms
        ):
            return True
        self._seen.put(impression, time_ms)
        return False

    def _those_that_matter(
        self, rule: Rule, times: tuple[int, ...], now_ms: int
    ) -> tuple[int, ...]:
        gone, there = 0, len(times)
        matters_until, from_ms = rule.matters_until, rule.from_ms
        while gone < there and (times[gone] < from_ms or matters_until(times[gone]) <= now_ms):
            gone += 1
        if there > rule.most_times:
            counting = bisect.bisect_right(times, now_ms)
            gone = max(gone, counting - rule.most_times)
        return times[gone:] if gone else times

    def _keep(self, rule: Rule, pair: str, times: tuple[int, ...], now_ms: int) -> None:
        """Store those times of a pair that still matter, and find out whether it is capped now."""
        times = self._those_that_matter(rule, times, now_ms)
        if times:
            self._views.put(pair, pack(times))
            if self._sweep_at.value() is None and rule.matters_until(times[-1]) < NEVER:
                self._plan_sweep(now_ms)
            if self._until_ms < NEVER:
                self._await_change(self._until_ms)
        elif self._views.contains(pair):
            self._views.remove(pair)
        self._judge(rule, pair, times, now_ms)

    def _judge(self, rule: Rule, pair: str, times: tuple[int, ...], now_ms: int) -> None:
        held = self._capped.get(pair)
        has_early = bool(times) and times[-1] > now_ms
        counting = times[: bisect.bisect_right(times, now_ms)] if has_early else times
        end_ms = rule.capped_until(counting)
        if end_ms > now_ms:
            if held is None or held[1] > end_ms:
                since_ms = now_ms if held is None else held[0]
                self._look_again(pair, since_ms, end_ms, member_of(rule, pair))
            if held is None:
                self._cap(rule, pair, now_ms)
            return
        if held is not None:
            self._release(pair, held[2], now_ms)
        if has_early:
            self._look_when_capped(rule, pair, times, now_ms)

    def _look_again(self, pair: str, since_ms: int, time_ms: int, member: str) -> None:
        self._capped.put(pair, (since_ms, time_ms, member))
        if time_ms < NEVER:
            self._schedule(time_ms, pair)

    def _look_at(self, pair: str, now_ms: int) -> None:
        """Look at a pair that may be capped now, or released unless views have come since."""
        held = self._capped.get(pair)
        rule = self._rules.get(name_in(pair))
        if rule is None or (held is not None and held[1] != now_ms):
            return  # the agenda has another time for the pair
        if held is not None:
            self._capped.put(pair, (held[0], NEVER, held[2]))
        self._keep(rule, pair, unpack(self._views.get(pair)), now_ms)
        if held is None or not self._capped.contains(pair):
            return
        if self._tells_still:
            self._changes.append((self._user, held[2], STILL, now_ms, rule.name))
        if self._lives.state_ms is not None:
            # Written again, so that it does not expire before the pair does.
            self._members.put(held[2], self._members.get(held[2]) or ())

    def _cap(self, rule: Rule, pair: str, now_ms: int) -> None:
        member = member_of(rule, pair)
        rules = self._members.get(member) or ()
        self._members.put(member, (*rules, rule.name))
        if not rules:
            self._counters["caps"].inc()
            self._changes.append((self._user, member, CAP, now_ms, rule.name))

    def _release(self, pair: str, member: str, now_ms: int) -> None:
        self._capped.remove(pair)
        name = name_in(pair)
        rules = tuple(rule for rule in self._members.get(member) or () if rule != name)
        if rules:
            self._members.put(member, rules)
        else:
            self._members.remove(member)
            self._counters["uncaps"].inc()
            self._changes.append((self._user, member, UNCAP, now_ms, name))

    # --- cleaning up -----------------------------------------------------------------------------

    def _plan_sweep(self, now_ms: int) -> None:
        """Plan the next sweep: when something may have aged out, and at a different time for every user, so
        that sweeps do not all come at once (P5)."""
        period_ms = self._book.sweep_every_ms
        jitter_ms = zlib.crc32(self._user.encode())
        time_ms = now_ms + period_ms + (jitter_ms - now_ms) % period_ms
        self._sweep_at.update(time_ms)
        self._timers.register_event_time_timer(time_ms)

    def _sweep(self, now_ms: int) -> None:
        ages = False  # whether there is something that will age out
        rules, views = self._rules, self._views
        for pair, packed in list(views.items()):
            rule = rules.get(pair[: pair.index("\x00")])
            end_ms = now_ms if rule is None else rule.matters_until(last(packed))
            if end_ms <= now_ms:
                views.remove(pair)
            else:
                ages |= end_ms < NEVER
        seen = list(self._seen.items())
        waiting = self._waiting_impressions() if seen else ()
        for impression, time_ms in seen:
            if time_ms + self._book.remembered_ms <= now_ms and impression not in waiting:
                self._seen.remove(impression)
            else:
                ages = True
        if ages:
            self._plan_sweep(now_ms)
        else:
            self._sweep_at.clear()

    def _waiting_impressions(self) -> set[str]:
        items = (item for _, work in self._agenda.items() for item in work)
        return {f"{item[2]}\x00{item[0]}" for item in items if type(item) is tuple}

    # --- rules -----------------------------------------------------------------------------------

    def process_broadcast_element(
        self, value: Message, ctx: Any
    ) -> Iterator[Change | tuple[OutputTag, object]]:
        """Take a message with rules (`rulebook.changed_rules`) or an order. A wrong message changes
        nothing."""
        if is_order(value):
            yield from self._obey(value, ctx)
            return
        state, now_ms = ctx.get_broadcast_state(RULES), ctx.current_watermark()
        try:
            told = tell(state, value, now_ms, self._lives.gone_rule_ms)
        except RuleError:
            return  # CheckMessages has reported it, once rather than for every key group
        if told.changed:
            self._use(read_plan(state), now_ms)
        else:
            # So the plan is read again when it is needed, but not for each message.
            self._until_ms = MIN_TIMESTAMP

        def take_notice(user: str, _: object) -> None:
            self._user, self._timers = user, ctx.timer_service()
            if told.changed:
                self._judge_anew(told.changed, now_ms)
            else:
                self._await_change(told.next_ms)

        if told.changed or told.next_ms < NEVER:
            ctx.apply_to_keyed_state(VIEWS, take_notice)
        yield from self._taken() or ()

    def _await_change(self, time_ms: int) -> None:
        self._schedule(time_ms, _CHANGE)

    def _judge_anew(self, changed: Iterable[str], now_ms: int) -> None:
        """Judge a user's pairs of these rules again. (Every pair that is capped has views.)"""
        for pair, packed in list(self._views.items()):
            name = name_in(pair)
            if name not in changed:
                continue
            rule = self._rules.get(name)
            if rule is not None:
                self._keep(rule, pair, unpack(packed), now_ms)
                continue
            self._views.remove(pair)
            held = self._capped.get(pair)
            if held is not None:
                self._release(pair, held[2], now_ms)
        if self._until_ms < NEVER and not self._views.is_empty():
            self._await_change(self._until_ms)
