"""The configuration as it is now: what the file said, what was changed at run time, and every topic's own settings.

A change makes a new BrokerConfig; whoever needs a value asks the view for `current` each time and keeps no copy.
What is stored in ZooKeeper may have been written by a broker of another version, so a value that cannot be used is left
out and reported instead of taking the broker down; what a client asks for is checked more strictly before it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kctl.config.broker import BROKER_PROPERTIES, BrokerConfig, contradictions
from kctl.config.config_loading import parse_broker_properties
from kctl.config.definition import Dynamic, Property, prop
from kctl.config.kinds import LONG, LONG_MAX
from kctl.config.problems import Problem
from kctl.config.rules import at_least
from kctl.config.topic import TopicConfig, topic_config_ignoring_errors
from kctl.errors import ApiError, ErrorCode

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
"""Properties that a running broker takes but server.properties does not have."""


class ConfigView:
    """The broker's and the topics' configuration at this moment.

    The set_ methods replace what they name as a whole, tell every subscriber when something changed, and return what
    they had to leave out.  Owner: event loop.
    """

    def __init__(self, static: Mapping[str, str]) -> None:
        """`static` is what server.properties and the command line gave, checked by `load_broker_config` before."""
        self.static: Mapping[str, str] = dict(static)
        self.dynamic_broker: Mapping[str, str] = {}
        self.dynamic_default: Mapping[str, str] = {}
        self.topic_overrides: dict[str, Mapping[str, str]] = {}
        self.current: BrokerConfig = _snapshot(self.static)
        self._topics: dict[str, TopicConfig] = {}
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """`changed` is called after each change of the broker's own configuration or of a topic's."""
        self._subscribers.append(changed)

    def set_dynamic_broker(self, overrides: Mapping[str, str]) -> list[Problem]:
        """What /config/brokers/N holds."""
        usable, problems = _usable(overrides, per_broker=True)
        return problems + self._change(self.dynamic_default, usable)

    def set_dynamic_default(self, overrides: Mapping[str, str]) -> list[Problem]:
        """What /config/brokers/<default> holds."""
        usable, problems = _usable(overrides, per_broker=False)
        return problems + self._change(usable, self.dynamic_broker)

    def set_topic(self, topic: str, overrides: Mapping[str, str]) -> list[str]:
        """What /config/topics/T holds."""
        self.topic_overrides[topic] = dict(overrides)
        self._topics[topic], ignored = topic_config_ignoring_errors(self.current, overrides)
        self._tell()
        return ignored

    def forget_topic(self, topic: str) -> None:
        """The topic is gone."""
        self.topic_overrides.pop(topic, None)
        self._topics.pop(topic, None)

    def topic(self, topic: str) -> TopicConfig:
        """The values in force for this topic, known or not."""
        known = self._topics.get(topic)
        if known is None:
            known, _ = topic_config_ignoring_errors(self.current, self.topic_overrides.get(topic, {}))
            self._topics[topic] = known
        return known

    def dynamic_only(self, name: str) -> int:
        """The value in force of one of DYNAMIC_ONLY_PROPERTIES: this broker's, else that of all brokers."""
        described = DYNAMIC_ONLY_PROPERTIES[name]
        text = self.dynamic_broker.get(name) or self.dynamic_default.get(name)
        value = described.default if text is None else described.parse(text)
        assert isinstance(value, int)
        return value

    def _change(self, default: Mapping[str, str], broker: Mapping[str, str]) -> list[Problem]:
        changed = _snapshot({**self.static, **default, **broker})
        problems = list(contradictions(changed))
        if problems:
            return problems
        self.dynamic_default, self.dynamic_broker, self.current = default, broker, changed
        self._topics.clear()
        self._tell()
        return []

    def _tell(self) -> None:
        for changed in self._subscribers:
            changed()


def validate_dynamic_overrides(view: ConfigView, overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """Judges what a client wants /config/brokers/N (or <default>) to hold from now on.

    Raises ApiError INVALID_REQUEST, which Kafka 2.8 answers where later versions say INVALID_CONFIG, for a property
    that is read-only, that a cluster-wide default cannot have, or whose value is wrong.  Unknown names pass, as in
    Kafka: they may belong to a plug-in.  Kafka's DynamicBrokerConfig.validate.
    """
    usable, problems = _usable(overrides, per_broker=per_broker)
    if not problems:
        given = {**view.dynamic_default, **usable} if per_broker else {**usable, **view.dynamic_broker}
        problems = list(contradictions(_snapshot({**view.static, **given})))
    if problems:
        raise ApiError(ErrorCode.INVALID_REQUEST, "; ".join(str(problem) for problem in problems))


def _snapshot(properties: Mapping[str, str]) -> BrokerConfig:
    values, problems = parse_broker_properties(properties)
    assert not problems, problems
    return BrokerConfig(**values)


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


def _dynamic_problem(name: str, text: str, *, per_broker: bool) -> Problem | None:
    described = BROKER_PROPERTIES.get(name) or DYNAMIC_ONLY_PROPERTIES.get(name)
    if described is None:
        return None
    shown = "[hidden]" if described.sensitive else text
    if described.dynamic is Dynamic.READ_ONLY:
        return Problem(
            name, shown, "cannot be changed while the broker runs", "set it in server.properties and restart"
        )
    if described.dynamic is Dynamic.PER_BROKER and not per_broker:
        return Problem(name, shown, "cannot be a default for all brokers", "set it for each broker by its id")
    try:
        described.parse(text)
    except ValueError as error:
        return Problem(name, shown, str(error), "correct it")
    return None
