"""Builds a BrokerConfig from names and texts, and reports all problems at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from kctl.config.broker import BROKER_PROPERTIES, BrokerConfig, contradictions, stores_in_format_of
from kctl.config.definition import Property
from kctl.config.listeners import listener_problems
from kctl.config.problems import BrokerConfigError, Problem

_KRAFT_ONLY = {
    "process.roles": "kctl uses ZooKeeper, not KRaft",
    "node.id": "in a ZooKeeper cluster the id of a broker is broker.id",
}


def load_broker_config(
    properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> tuple[BrokerConfig, list[str]]:
    """The configuration of server.properties with overrides from the command line, and warnings.

    Raises BrokerConfigError with all problems.
    """
    given = {**properties, **(overrides or {})}
    values, problems = parse_broker_properties(given)
    if not problems:
        config = BrokerConfig(**values)
        problems = [*contradictions(config), *listener_problems(config)]
    if problems:
        raise BrokerConfigError(problems)
    return config, [*_unknown_names(given), *_without_effect(given), *_old_format(config)]


def parse_broker_properties(given: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """Parsed values of the known names by attribute, and problems of single properties."""
    values: dict[str, Any] = {}
    problems = []
    for name, text in given.items():
        if name in _KRAFT_ONLY:
            problems.append(Problem(name, text, _KRAFT_ONLY[name], "remove it"))
        described = BROKER_PROPERTIES.get(name)
        if described is None:
            continue
        if not text.strip() and described.default is None:
            continue
        try:
            values[described.attribute] = described.parse(text)
        except ValueError as error:
            problems.append(_unparsable(described, text, str(error)))
    return values, problems


def _unparsable(described: Property, text: str, reason: str) -> Problem:
    default = described.format(described.default)
    remedy = "correct or remove it" if default is None else f"correct it or remove it, which means {default or 'empty'}"
    return Problem(described.name, "[hidden]" if described.sensitive else text, reason, remedy)


def _unknown_names(given: Mapping[str, str]) -> list[str]:
    warnings = []
    for name in given:
        if name in BROKER_PROPERTIES or name.startswith("listener.name."):
            continue
        close = difflib.get_close_matches(name, BROKER_PROPERTIES, n=1, cutoff=0.85)
        hint = f"; did you mean {close[0]}?" if close else ""
        warnings.append(f"{name}: unknown property, ignored{hint}")
    return warnings


def _old_format(config: BrokerConfig) -> list[str]:
    """Warns about an old format, which is accepted only with an inter.broker.protocol.version below 0.11.0."""
    version = config.log_message_format_version
    if stores_in_format_of(version):
        return []
    return [f"log.message.format.version={version}: batches are stored in the format of 0.11.0"]


def _without_effect(given: Mapping[str, str]) -> list[str]:
    warnings = []
    for name, text in given.items():
        described = BROKER_PROPERTIES.get(name)
        if described is not None and described.unused and described.parse(text) != described.default:
            warnings.append(f"{name}: has no effect; {described.unused}")
    return warnings
