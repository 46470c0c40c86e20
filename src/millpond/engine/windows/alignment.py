"""Where tumbling and sliding windows in event time begin and end, and which panes they consist of."""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from millpond.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows


class Alignment(NamedTuple):
    """The windows begin every `slide` ms, shifted by `offset` ms, and are `size` ms long. All starts and ends
    are multiples of `pane` ms, apart from the offset."""

    size: int
    slide: int
    offset: int
    pane: int


def alignment_of(assigner: object) -> Alignment:
    """Return the alignment of the windows that a tumbling or sliding assigner in event time assigns."""
    if isinstance(assigner, SlidingEventTimeWindows):
        slide = assigner.slide
    else:
        assert isinstance(assigner, TumblingEventTimeWindows)
        slide = assigner.size
    return Alignment(assigner.size, slide, assigner.offset, gcd(assigner.size, slide))
