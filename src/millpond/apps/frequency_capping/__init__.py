"""Ad frequency capping: "user U has seen ad A N times in 5 days", to Redis, and back when views age out."""

from millpond.apps.frequency_capping.config import CappingConfig, default_config, load_config
from millpond.apps.frequency_capping.pipeline import CappingJob, build
from millpond.apps.frequency_capping.rules import RuleError

__all__ = ["CappingConfig", "CappingJob", "RuleError", "build", "default_config", "load_config"]
