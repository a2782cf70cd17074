"""The current configuration: static properties, dynamic changes, and the overrides of topics.

A change creates a new BrokerConfig; users read `current` each time and keep no copy.  Values in ZooKeeper may have been
written by a broker of another version, so invalid ones are skipped and reported; values from clients are validated
before they are stored.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kctl.config.broker import BROKER_PROPERTIES, BrokerConfig, contradictions
from kctl.config.config_loading import KRAFT_ONLY, parse_broker_properties
from kctl.config.definition import Dynamic, Problem, Property, at_least, prop
from kctl.config.kinds import LONG, LONG_MAX
from kctl.config.listeners import listener_problems
from kctl.config.subjects.groups import GroupConfig, group_config
from kctl.config.topic import TopicConfig, topic_config_ignoring_errors
from kctl.errors import ApiError, ConfigError, ErrorCode
from kctl.limits import Subject, bound

_OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.(.+)")
_CLUSTER_WIDE_OF_LISTENERS = frozenset({"max.connections", "max.connection.creation.rate"})
"""Properties of a listener that may be a default for all brokers.  Kafka: ClusterLevelListenerConfigs."""
_TOKEN_PROPERTIES = tuple(name for name in BROKER_PROPERTIES if name.startswith("sasl.oauthbearer."))
"""With these, a client that may change properties could make the broker open any URL or file (CVE-2025-27817)."""
_READ_ONLY = "cannot be changed while the broker runs"
_NO_DEFAULT = "cannot be a default for all brokers"
_NEEDS_LISTENER = "can be changed for one listener only"
_WORDS_OF_KAFKA = {
    _READ_ONLY: "Cannot update these configs dynamically",
    _NO_DEFAULT: "Cannot update these configs at default cluster level, broker id must be specified",
    _NEEDS_LISTENER: "These security configs can be dynamically updated only per-listener using the listener prefix",
}
ALTER_LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def _throttle(name: str, doc: str) -> Property:
    field = prop(name, LONG, at_least(0), default=LONG_MAX, dynamic=Dynamic.CLUSTER_WIDE, doc=doc)
    described = field.metadata["property"]  # type: ignore[attr-defined]  # prop's declared type is the value's
    assert isinstance(described, Property)
    return described


DYNAMIC_ONLY_PROPERTIES: Mapping[str, Property] = {
    described.name: described
    for described in (
        _throttle("leader.replication.throttled.rate", "Bytes per second sent to throttled followers."),
        _throttle("follower.replication.throttled.rate", "Bytes per second fetched by throttled replicas."),
        _throttle(ALTER_LOG_DIRS_RATE, "Bytes per second moved between log directories."),
    )
}
"""Dynamic properties that cannot be set in server.properties."""


GROUP_OVERRIDES_MAX = bound(
    Subject.CONFIGURATION,
    "groups with overrides of their own",
    10_000,
    "groups",
    on_excess="those of further groups have no effect, which the log says",
)
Check = Callable[[BrokerConfig, Mapping[str, str]], Awaitable[None]]
"""Raises ConfigError if a component cannot use a configuration; gets the values, and the texts of all properties."""


class ConfigView:
    """The current configuration of the broker and its topics.

    The set_ methods replace all overrides of a resource, notify subscribers of changes, and return the values skipped
    as invalid.  Owner: event loop.
    """

    def __init__(self, static: Mapping[str, str]) -> None:
        """Take `static`, the properties of server.properties and the command line, checked by `load_broker_config`."""
        self.static: Mapping[str, str] = dict(static)
        self.dynamic_broker: Mapping[str, str] = {}
        self.dynamic_default: Mapping[str, str] = {}
        self.topic_overrides: dict[str, Mapping[str, str]] = {}
        self.static_config: BrokerConfig = _snapshot(self.static)
        self.current: BrokerConfig = self.static_config
        self.group_overrides: dict[str, Mapping[str, str]] = {}
        self._topics: dict[str, TopicConfig] = {}
        self._groups: dict[str | None, GroupConfig] = {}
        self._without_overrides: TopicConfig | None = None
        """That of all topics without overrides, because making one takes 0.05 ms."""
        self._subscribers: list[Callable[[], None]] = []
        self._checks: list[Check] = []

    @property
    def properties(self) -> dict[str, str]:
        """The texts of all properties in force, also of names that BrokerConfig does not have, such as
        `listener.name.internal.ssl.keystore.location`."""
        return {**self.static, **self.dynamic_default, **self.dynamic_broker}

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of the broker's or a topic's configuration."""
        self._subscribers.append(changed)

    def add_check(self, check: Check) -> None:
        """Call `check` before a client's change of the broker's configuration is stored."""
        self._checks.append(check)

    def set_dynamic_broker(self, overrides: Mapping[str, str]) -> list[Problem]:
        """Replace the values of /config/brokers/N."""
        usable, problems = _usable(overrides, per_broker=True)
        fitting, contradicting = _fitting(usable, lambda given: {**self.static, **self.dynamic_default, **given})
        if fitting is not None:
            self._change(self.dynamic_default, fitting)
        return problems + contradicting

    def set_dynamic_default(self, overrides: Mapping[str, str]) -> list[Problem]:
        """Replace the values of /config/brokers/<default>."""
        usable, problems = _usable(overrides, per_broker=False)
        fitting, contradicting = _fitting(usable, lambda given: {**self.static, **given, **self.dynamic_broker})
        if fitting is not None:
            self._change(fitting, self.dynamic_broker)
        return problems + contradicting

    def set_topic(self, topic: str, overrides: Mapping[str, str]) -> list[str]:
        """Replace the values of /config/topics/T."""
        self.topic_overrides[topic] = dict(overrides)
        self._topics[topic], ignored = self._topic_config(overrides)
        self.notify()
        return ignored

    def forget_topic(self, topic: str) -> None:
        """Remove the overrides of a deleted topic."""
        self.topic_overrides.pop(topic, None)
        self._topics.pop(topic, None)

    def topic(self, topic: str) -> TopicConfig:
        """Return the values in force for a topic, with or without overrides."""
        known = self._topics.get(topic)
        if known is None:
            known, _ = self._topic_config(self.topic_overrides.get(topic, {}))
            self._topics[topic] = known
        return known

    def set_group(self, group_id: str, overrides: Mapping[str, str]) -> list[str]:
        """Replace the values of /config/groups/G; none without overrides."""
        self._groups.pop(group_id, None)
        self.group_overrides.pop(group_id, None)
        if not overrides:
            return []
        if len(self.group_overrides) >= GROUP_OVERRIDES_MAX:
            return [f"there are overrides of {GROUP_OVERRIDES_MAX} groups"]
        self.group_overrides[group_id] = dict(overrides)
        return group_config(self.current, overrides)[1]

    def group(self, group_id: str) -> GroupConfig:
        """Return the values in force for a group, with or without overrides."""
        # One object for all groups without overrides.
        key = group_id if group_id in self.group_overrides else None
        known = self._groups.get(key)
        if known is None:
            known, _ = group_config(self.current, self.group_overrides.get(group_id, {}))
            self._groups[key] = known
        return known

    def _topic_config(self, overrides: Mapping[str, str]) -> tuple[TopicConfig, list[str]]:
        if overrides:
            return topic_config_ignoring_errors(self.current, overrides)
        if self._without_overrides is None:
            self._without_overrides, _ = topic_config_ignoring_errors(self.current, {})
        return self._without_overrides, []

    def dynamic_only(self, name: str) -> int:
        """Return the value of one of DYNAMIC_ONLY_PROPERTIES: this broker's, else the cluster's."""
        described = DYNAMIC_ONLY_PROPERTIES[name]
        text = self.dynamic_broker.get(name) or self.dynamic_default.get(name)
        value = described.default if text is None else described.parse(text)
        assert isinstance(value, int)
        return value

    async def validate(self, overrides: Mapping[str, str], *, per_broker: bool) -> None:
        """Validate new overrides of /config/brokers/N (or <default>), also with the components that use them.

        Raises ApiError: INVALID_REQUEST, as Kafka 2.8 (later versions: INVALID_CONFIG), for a property that is
        read-only, cannot be a cluster-wide default, or has a value that is invalid, or that the component which it
        configures cannot use.  Unknown names are accepted, because they may belong to a plug-in.  Kafka's
        DynamicBrokerConfig.validate.
        """
        usable, problems = _usable(overrides, per_broker=per_broker)
        given = {**self.dynamic_default, **usable} if per_broker else {**usable, **self.dynamic_broker}
        properties = {**self.static, **given}
        config = _snapshot(properties)
        problems = problems or _contradictions(config)
        if problems:
            raise ApiError(ErrorCode.INVALID_REQUEST, _refusal(problems))
        try:
            for check in self._checks:
                await check(config, properties)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def _change(self, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        self.dynamic_default, self.dynamic_broker = default, broker
        self.current = _snapshot(self.properties)
        self._topics.clear()
        self._groups.clear()
        self._without_overrides = None
        self.notify()

    def notify(self) -> None:
        """Call the subscribers; also after a change of a logger's level, which is not stored here."""
        for changed in self._subscribers:
            changed()


def _refusal(problems: Sequence[Problem]) -> str:
    """Return the text of an error, with the words of Kafka's DynamicBrokerConfig, for which clients look, if any."""
    words = dict.fromkeys(_WORDS_OF_KAFKA[problem.reason] for problem in problems if problem.reason in _WORDS_OF_KAFKA)
    return ": ".join([*words, "; ".join(map(str, problems))])


def _snapshot(properties: Mapping[str, str]) -> BrokerConfig:
    values, problems = parse_broker_properties(properties)
    assert not problems, problems
    return BrokerConfig(**values)


def _contradictions(config: BrokerConfig) -> list[Problem]:
    return [*contradictions(config), *listener_problems(config)]


def _usable(overrides: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], list[Problem]]:
    usable = {}
    problems = []
    for name, text in overrides.items():
        problem = _dynamic_problem(name, text, per_broker=per_broker)
        if problem is None:
            usable[name] = text
        else:
            problems.append(problem)
    return usable, problems


def _fitting(
    usable: Mapping[str, str], properties_with: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> tuple[dict[str, str] | None, list[Problem]]:
    """Return the overrides without those that contradict other properties, and the contradictions.

    `properties_with` returns all properties with some of the overrides.  None if leaving out no override helps.
    """

    def problems_without(name: str | None) -> list[Problem]:
        given = {known_name: text for known_name, text in known.items() if known_name != name}
        return _contradictions(_snapshot(properties_with(given)))

    known = {name: text for name, text in usable.items() if name in BROKER_PROPERTIES}
    fitting = dict(usable)
    problems = problems_left = problems_without(None)
    while problems_left:
        remaining = {name: problems_without(name) for name in known}
        removed = min(remaining, key=lambda name: len(remaining[name]), default=None)
        if removed is None or len(remaining[removed]) >= len(problems_left):
            return None, problems
        problems_left = remaining[removed]
        del fitting[removed], known[removed]
    return fitting, problems


def _dynamic_problem(name: str, text: str, *, per_broker: bool) -> Problem | None:
    if name in KRAFT_ONLY:
        return Problem(name, text, KRAFT_ONLY[name], "remove it")
    if any(name == secret or name.endswith("." + secret) for secret in _TOKEN_PROPERTIES):
        return _read_only(name, text)
    of_listener = _OF_LISTENER.match(name)
    if of_listener is not None:
        return _listener_problem(name, of_listener[1], text, per_broker=per_broker)
    described = BROKER_PROPERTIES.get(name) or DYNAMIC_ONLY_PROPERTIES.get(name)
    if described is None:
        return None
    shown = "[hidden]" if described.sensitive else text
    if described.dynamic is Dynamic.READ_ONLY:
        return _read_only(name, shown)
    if described.dynamic is Dynamic.PER_LISTENER:
        return Problem(name, shown, _NEEDS_LISTENER, f"set listener.name.NAME.{name} with the name of the listener")
    if described.dynamic is Dynamic.PER_BROKER and not per_broker:
        return _no_default(name, shown)
    return _value_problem(name, described, text)


def _no_default(name: str, shown: str) -> Problem:
    return Problem(name, shown, _NO_DEFAULT, "set it for each broker by its id")


def _read_only(name: str, shown: str) -> Problem:
    return Problem(name, shown, _READ_ONLY, "set it in server.properties and restart")


def _listener_problem(name: str, general_name: str, text: str, *, per_broker: bool) -> Problem | None:
    """Return the problem of `listener.name.X.<general_name>`; names that are not known may belong to a plug-in."""
    described = BROKER_PROPERTIES.get(general_name)
    if general_name not in _CLUSTER_WIDE_OF_LISTENERS and not per_broker:
        return _no_default(name, "[hidden]")
    return None if described is None else _value_problem(name, described, text)


def _value_problem(name: str, described: Property, text: str) -> Problem | None:
    try:
        described.parse(text)
    except ValueError as error:
        return Problem(name, "[hidden]" if described.sensitive else text, str(error), "correct it")
    return None
