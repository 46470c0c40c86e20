"""What is kept of a user, and what comes out.

State per user, entry by entry (P4):

    agenda   time -> what to do then: views that begin to count, pairs to look at, CHANGE
    views    pair -> the times of its views that matter (times.py)
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
_ANY = Types.PICKLED_BYTE_ARRAY()  # tuples: nobody can change them, so they are kept as they are
VIEWS = MapStateDescriptor("views", Types.STRING(), _ANY)
CAPPED = MapStateDescriptor("capped", Types.STRING(), _ANY)
MEMBERS = MapStateDescriptor("members", Types.STRING(), _ANY)
AGENDA = MapStateDescriptor("agenda", Types.LONG(), _ANY)
SEEN = MapStateDescriptor("seen", Types.STRING(), Types.LONG())
LATE = OutputTag("late")
ANSWERS = OutputTag("answers")
CAP, UNCAP, FORGET = "CAP", "UNCAP", "FORGET"
STILL = "STILL"  # capped for longer; only told if Redis forgets by itself


# User, member, CAP or UNCAP, event time, and the rule that made the difference.
Change = tuple[str, str, str, int, str]
# Impression, time, event, ad, the whole record if it has more fields.
View = tuple["str | None", int, str, str, "str | None"]


def with_ttl(descriptor: MapStateDescriptor, ttl_ms: int | None) -> MapStateDescriptor:
    """The same state, whose entries expire."""
    if ttl_ms is None:
        return descriptor
    copied = copy.copy(descriptor)
    ttl = StateTtlConfig.new_builder(Duration.of_millis(ttl_ms)).use_event_time().build()
    copied.enable_time_to_live(ttl)
    return copied


def name_in(pair: str) -> str:
    return pair.partition("\x00")[0]


def member_of(rule: Rule, pair: str) -> str:
    return f"{rule.level}:{pair.partition(chr(0))[2]}"
