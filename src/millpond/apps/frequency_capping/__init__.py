"""Ad frequency capping: writes to Redis which ads a user has seen too often, and releases them as views age.

For example, a rule caps an ad for a user who has seen it 5 times in 5 days.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.apps.frequency_capping.config import CappingConfig, default_config, load_config
    from millpond.apps.frequency_capping.pipeline import CappingJob, build
    from millpond.apps.frequency_capping.rules import RuleError

__all__ = ["CappingConfig", "CappingJob", "RuleError", "build", "default_config", "load_config"]

_HOMES = {
    "CappingConfig": "config",
    "CappingJob": "pipeline",
    "RuleError": "rules",
    "build": "pipeline",
    "default_config": "config",
    "load_config": "config",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, because it takes half a second and command lines do not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
