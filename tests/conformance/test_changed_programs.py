"""C40, C41, C42 with every backend: what is read with another type, and what is refused.

The tests are those of `tests/unit`; there they run with the default backend, and with more parallelisms.
"""

from __future__ import annotations

from tests.unit.savepoint.test_savepoint import (
    test_max_parallelism_cannot_change,
    test_new_operator_and_new_state_start_empty,
    test_unclaimed_state_is_refused_unless_allowed,
)
from tests.unit.state.test_evolution import test_log_is_read_with_another_type

__all__ = [
    "test_log_is_read_with_another_type",
    "test_max_parallelism_cannot_change",
    "test_new_operator_and_new_state_start_empty",
    "test_unclaimed_state_is_refused_unless_allowed",
]
