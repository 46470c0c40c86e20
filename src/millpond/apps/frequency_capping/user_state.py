"""What is kept about a user, and what comes out.

State per user, entry by entry (P4):

    agenda   time -> what to do then: views that begin to count, pairs to look at, CHANGE
    views    pair -> the times of those of its views that matter (times.py)
    capped   pair -> (since, when to look at it again, member)
    members  member -> the rules that cap it
    seen     event and impression -> time of its record; WAITS if it is in the agenda
"""

from __future__ import annotations

import copy

from millpond.apps.frequency_capping.rules import Rule
from millpond.common import Duration, Types
from millpond.datastream import OutputTag
from millpond.datastream.state import MapStateDescriptor
from millpond.datastream.state_ttl import StateTtlConfig

RULES = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
# For tuples and bytes, which are immutable and so kept as they are.
_ANY = Types.PICKLED_BYTE_ARRAY()
VIEWS = MapStateDescriptor("views", Types.STRING(), _ANY)
CAPPED = MapStateDescriptor("capped", Types.STRING(), _ANY)
MEMBERS = MapStateDescriptor("members", Types.STRING(), _ANY)
AGENDA = MapStateDescriptor("agenda", Types.LONG(), _ANY)
SEEN = MapStateDescriptor("seen", Types.STRING(), Types.LONG())
LATE = OutputTag("late")
ANSWERS = OutputTag("answers")
CAP, UNCAP, FORGET = "CAP", "UNCAP", "FORGET"
STILL = "STILL"  # capped for longer; emitted only if Redis forgets by itself


# User, member, CAP or UNCAP, event time, and the rule that made the difference.
Change = tuple[str, str, str, int, str]
# Impression, time, event, ad, the whole record if it has more fields.
View = tuple["str | None", int, str, str, "str | None"]
# A view that begins to count, a pair to look at, or None: other rules are in force from now on.
AgendaItem = View | str | None
# Since when a pair is capped, when to look at it again, and its member.
Hold = tuple[int, int, str]


def with_ttl(descriptor: MapStateDescriptor, ttl_ms: int | None) -> MapStateDescriptor:
    """Return a descriptor of the same state with entries that expire; the same one if `ttl_ms` is None."""
    if ttl_ms is None:
        return descriptor
    copied = copy.copy(descriptor)
    ttl = StateTtlConfig.new_builder(Duration.of_millis(ttl_ms)).use_event_time().build()
    copied.enable_time_to_live(ttl)
    return copied


def name_in(pair: str) -> str:
    """Return the name of a pair's rule."""
    return pair.partition("\x00")[0]


def member_of(rule: Rule, pair: str) -> str:
    """Return the member that a pair of this rule caps: level and id, as in Redis."""
    return f"{rule.level}:{pair.partition(chr(0))[2]}"
