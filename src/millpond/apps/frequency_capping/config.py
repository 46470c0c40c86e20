"""Reads the file of rules, which is YAML; errors name the line that is wrong."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from millpond.apps.frequency_capping.records import FIELDS, RecordFormat
from millpond.apps.frequency_capping.rules import (
    DEFAULT_RULES,
    RuleError,
    parse_filter,
    parse_rule,
    parse_rules,
)
from millpond.apps.frequency_capping.windows import WindowError, parse_duration
from millpond.errors import SetupError

_KEYS = ("fields", "filter", "max_ahead", "rules")


@dataclass(frozen=True)
class CappingConfig:
    """What a file of rules says. `rules` are as the user wrote them, and valid. `names_rules` is False if
    there was no `rules:`, so that the default rule stands in."""

    rules: list[dict[str, Any]]
    record_format: RecordFormat
    names_rules: bool = True


def default_config() -> CappingConfig:
    """Return what holds without a file of rules: one rule, 5 views of an ad in 5 days."""
    return CappingConfig(DEFAULT_RULES, RecordFormat(), names_rules=False)


def load_config(path: str | Path) -> CappingConfig:
    """Read a file of rules. Raise RuleError, naming file, line and reason, if it cannot be used."""
    try:
        content = Path(path).read_bytes()
    except OSError as problem:
        raise RuleError(f"The rules {path} cannot be read: {problem}.") from None
    return read_config(content, str(path))


def read_config(content: bytes, where: str) -> CappingConfig:
    """Return what the bytes of a file of rules say. `where` names the file in errors. Raise RuleError, naming
    file, line and reason, if they cannot be used."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise RuleError(f"The rules {where} cannot be read: {problem}.") from None
    return parse_config(text, where)


def parse_config(text: str, where: str) -> CappingConfig:
    """Return what the text of a file of rules says, as `read_config` does."""
    yaml = _yaml()
    loader = _plain_loader(yaml)
    try:
        content, root = yaml.load(text, loader), yaml.compose(text, loader)
    except (ValueError, TypeError, RecursionError) as problem:
        raise RuleError(f"{where}: {type(problem).__name__}: {str(problem)[:100]}.") from None
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        position = where if mark is None else f"{where}, line {mark.line + 1}"
        reason = getattr(problem, "problem", None) or str(problem)
        raise RuleError(f"{position}: {reason}.") from None
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise RuleError(f"{where}: the file must contain `rules:` with a list below it.")
    lines = (
        {key.value: (key.start_mark.line + 1, value) for key, value in root.value} if root else {}
    )
    for key in content:
        if key not in _KEYS:
            line = lines[str(key)][0] if str(key) in lines else 1
            raise RuleError(
                f"{where}, line {line}: {key!r} is unknown; there are {', '.join(_KEYS)}."
            )
    specs = content.get("rules", DEFAULT_RULES)
    _check_rules(specs, lines.get("rules"), where)
    try:
        record_format = _record_format(content)
    except RuleError as problem:
        line = lines[problem.key][0] if problem.key in lines else 1
        raise RuleError(f"{where}, line {line}: {problem}.") from None
    return CappingConfig(specs, record_format, names_rules="rules" in content)


def _check_rules(specs: object, position: tuple[int, Any] | None, where: str) -> None:
    line, node = position or (1, None)
    nodes = [] if node is None or not isinstance(node.value, list) else node.value
    try:
        if isinstance(specs, list):
            for number, spec in enumerate(specs):
                line = nodes[number].start_mark.line + 1 if number < len(nodes) else line
                try:
                    parse_rule(spec)
                except RuleError as problem:
                    line = _line_of(nodes, number, problem.key) or line
                    raise
                names = [spec.get("name") for spec in specs[:number]]
                if spec["name"] in names:
                    raise RuleError(f"there are two rules with the name {spec['name']!r}")
        parse_rules(specs)
    except RuleError as problem:
        raise RuleError(f"{where}, line {line}: {problem}.") from None


def _line_of(nodes: list[Any], number: int, key: str | None) -> int | None:
    """Return the line of a key within a rule; None if it is not there."""
    if key is None or number >= len(nodes) or not isinstance(nodes[number].value, list):
        return None
    for key_node, _ in nodes[number].value:
        if key_node.value == key:
            return int(key_node.start_mark.line) + 1
    return None


def _record_format(content: dict[str, Any]) -> RecordFormat:
    names = content.get("fields") or {}
    if not isinstance(names, dict):
        raise RuleError("fields must map things such as user or ad to names of fields", "fields")
    for which, name in names.items():
        if which not in FIELDS:
            known = ", ".join(FIELDS)
            raise RuleError(f"fields: {which!r} is unknown; there are {known}", "fields")
        if not isinstance(name, str) or not name:
            raise RuleError(f"fields: {which} must be the name of a field, not {name!r}", "fields")
    if len(set(names.values())) < len(names):
        raise RuleError("fields: one field cannot stand for two things", "fields")
    try:
        only = parse_filter(content.get("filter") or {}, "filter")
        ahead = content.get("max_ahead")
        max_ahead_ms = RecordFormat().max_ahead_ms if ahead is None else parse_duration(ahead)
    except RuleError as problem:
        raise RuleError(str(problem), "filter") from None
    except WindowError as problem:
        raise RuleError(str(problem), "max_ahead") from None
    return RecordFormat(dict(names), only, max_ahead_ms)


def _plain_loader(yaml: Any) -> type:
    """Return a YAML loader that reads values the way people mean them: NO is a country, and 010 and
    2024-01-01 are text."""

    class PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}

    for tag, pattern, first in (
        ("bool", r"^(?:true|false)$", "tf"),
        ("int", r"^-?(?:0|[1-9][0-9]{0,17})$", "-0123456789"),
        ("float", r"^-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,18}$", "-0123456789"),
        ("null", r"^(?:null|~|)$", ["n", "~", ""]),
    ):
        PlainLoader.add_implicit_resolver(
            f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first)
        )
    return PlainLoader


def _yaml() -> ModuleType:
    try:
        return importlib.import_module("yaml")
    except ImportError:
        raise SetupError(
            "Rules in YAML need the package PyYAML: pip install 'millpond[capping]'."
        ) from None
