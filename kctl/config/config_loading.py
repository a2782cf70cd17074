"""Builds a BrokerConfig from names and texts, and reports all problems at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kctl.config.broker import BROKER_PROPERTIES, BrokerConfig, contradictions, stores_in_format_of
from kctl.config.definition import BrokerConfigError, Problem, Property
from kctl.config.listeners import listener_problems
from kctl.limits import Subject, bound

PROPERTY_HINTS_MAX = bound(
    Subject.CONFIGURATION,
    "unknown properties of a broker for which a similar name is searched",
    100,
    "properties",
    on_excess="further ones are reported without a suggestion",
)
"""One search takes 1 ms."""


_OF_LISTENER = re.compile(r"listener\.name\.([^.]+)\.(.+)")
_IS_OF_LISTENERS = re.compile(
    r"ssl\.|sasl\.|principal\.builder\.class|connections\.max\.reauth\.ms|max\.connections$|max\.connection\.creation\.rate"
)
"""What a listener can have for itself.  Kafka: AbstractConfig.valuesWithPrefixOverride, SocketServer (2.8)."""
KRAFT_ONLY = {
    "process.roles": "kctl uses ZooKeeper, not KRaft",
    "node.id": "in a ZooKeeper cluster the id of a broker is broker.id",
}


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of parsing and checking given properties."""

    config: BrokerConfig
    """Has the defaults of properties that have a problem."""
    problems: tuple[Problem, ...]
    """All reasons why a broker cannot use the properties."""
    warnings: tuple[str, ...]
    """The properties that a broker ignores, as `name: reason`."""


def load_broker_config(
    properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> tuple[BrokerConfig, list[str]]:
    """Return the configuration of server.properties with overrides from the command line, and warnings.

    Raises BrokerConfigError with all problems.
    """
    examined = examine({**properties, **(overrides or {})})
    if examined.problems:
        raise BrokerConfigError(examined.problems)
    return examined.config, list(examined.warnings)


def examine(given: Mapping[str, str]) -> Examined:
    """Return the configuration of these properties with all its problems and warnings."""
    values, problems = parse_broker_properties(given)
    problems += _problems_of_listeners(given)
    config = BrokerConfig(**values)
    unusable = [problem.name for problem in problems]
    # With the default of an unusable property, a contradiction to it is not reported.
    across = [*contradictions(config), *listener_problems(config)]
    problems += [problem for problem in across if not any(name in str(problem) for name in unusable)]
    warnings = [*_unknown_names(given), *_unknown_listeners(given, config), *_without_effect(given)]
    if not problems:
        warnings += _old_format(config)
    return Examined(config, tuple(problems), tuple(warnings))


def parse_broker_properties(given: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """Return parsed values of the known names by attribute, and problems of single properties."""
    values: dict[str, Any] = {}
    problems = []
    for name, text in given.items():
        if name in KRAFT_ONLY:
            problems.append(Problem(name, text, KRAFT_ONLY[name], "remove it"))
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
    warnings: list[str] = []
    for name in given:
        if name in BROKER_PROPERTIES or name.startswith("listener.name."):
            continue
        hint = _hint(name, BROKER_PROPERTIES) if len(warnings) < PROPERTY_HINTS_MAX else ""
        warnings.append(f"{name}: unknown property, ignored{hint}")
    return warnings


def _unknown_listeners(given: Mapping[str, str], config: BrokerConfig) -> list[str]:
    """Warn about properties of listeners that do not exist, and about unknown properties of those that do."""
    protocols = config.listener_security_protocol_map
    listeners = {entry.rpartition(":")[0].strip().lower() for entry in protocols.split(",")}
    warnings: list[str] = []
    for name in given:
        of_listener = _OF_LISTENER.fullmatch(name)
        if of_listener is None:
            continue
        listener, rest = of_listener.groups()
        has_hint = len(warnings) < PROPERTY_HINTS_MAX
        if listener not in listeners:
            hint = _hint(listener, listeners) if has_hint else ""
            warnings.append(f"{name}: listener.security.protocol.map does not have the listener, ignored{hint}")
        elif not {rest, rest.partition(".")[2]} & BROKER_PROPERTIES.keys():
            hint = _hint(rest, BROKER_PROPERTIES) if has_hint else ""
            warnings.append(f"{name}: unknown property of a listener, ignored{hint}")
    return warnings


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
    return f"; did you mean {close[0]}?" if close else ""


def _old_format(config: BrokerConfig) -> list[str]:
    """Warn about an old format, which is accepted only with an inter.broker.protocol.version below 0.11.0."""
    version = config.log_message_format_version
    if stores_in_format_of(version):
        return []
    return [f"log.message.format.version={version}: batches are stored in the format of 0.11.0"]


def _without_effect(given: Mapping[str, str]) -> list[str]:
    warnings: list[str] = []
    for name, text in given.items():
        described = BROKER_PROPERTIES.get(name) or _of_listener(name)
        if described is None:
            continue
        if described.unused and not _is_default(described, text):
            warnings.append(f"{name}: has no effect; {described.unused}")
        elif name not in BROKER_PROPERTIES and not _IS_OF_LISTENERS.match(described.name):
            warnings.append(f"{name}: has no effect; all listeners have {described.name} in common")
    return warnings


def _of_listener(name: str) -> Property | None:
    """Return the property of which `listener.name.X.NAME` or `listener.name.X.MECHANISM.NAME` is the value for a
    listener.
    """
    match = _OF_LISTENER.fullmatch(name)
    if match is None:
        return None
    return BROKER_PROPERTIES.get(match[2]) or BROKER_PROPERTIES.get(match[2].partition(".")[2])


def _problems_of_listeners(given: Mapping[str, str]) -> list[Problem]:
    problems = []
    for name, text in given.items():
        described = _of_listener(name)
        if described is None or not text.strip() or not _IS_OF_LISTENERS.match(described.name):
            continue
        try:
            described.parse(text)
        except ValueError as error:
            shown = "[hidden]" if described.sensitive else text
            problems.append(Problem(name, shown, str(error), "correct or remove it"))
    return problems


def _is_default(described: Property, text: str) -> bool:
    try:
        return described.parse(text) == described.default
    except ValueError:
        return False
