"""Ad frequency capping: "user U has seen ad A N times in 5 days", to Redis, and back when views age out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    """Import on first use: reading a command line needs none of this, and it takes half a second."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
