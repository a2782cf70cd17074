"""Checks of the arguments of the administration client: each raises UsageError, which names the argument.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from kctl.admin.security.users import NewPassword
from kctl.admin.topics.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from kctl.admin.topics.topics import BROKER_DEFAULT, NewTopic
from kctl.errors import UsageError
from kctl.limits import Subject, bound
from kctl.model import INT32_MAX, TopicPartition
from kctl.output.quantities import counted
from kctl.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    binding_problem,
)
from kctl.security.acls import ResourceType as AclResourceType
from kctl.security.scram import ITERATIONS_MIN, Mechanism

_BROKER_ID_DIGITS = 10
ITERATIONS_MAX = 16_384
"""Of a SCRAM credential; Kafka's brokers accept no more."""

K = TypeVar("K")
T = TypeVar("T")

ITEMS_MAX = bound(
    Subject.COMMANDS,
    "items of one call of AdminClient",
    100_000,
    "items",
    on_excess="UsageError, before a request is sent",
)


def checked_items(argument: str, items: Any, kind: type[T]) -> list[T]:
    """Return the items, each of which is of this type."""
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Collection):
        raise UsageError(f"{argument} must be a list of {kind.__name__}, not {_shown(items)}")
    check_count(argument, items)
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            raise UsageError(f"{argument}[{index}] must be a {kind.__name__}, not {_shown(item)}")
    return list(items)


def checked_names(argument: str, names: Any) -> list[str]:
    """Return the names, each once."""
    found = checked_items(argument, names, str)
    for index, name in enumerate(found):
        check_name(f"{argument}[{index}]", name)
    return list(dict.fromkeys(found))


def check_name(argument: str, name: Any) -> None:
    """Check that it is a text that is not empty, and that a request can contain."""
    if not isinstance(name, str):
        raise UsageError(f"{argument} must be a str, not {_shown(name)}")
    if not name:
        raise UsageError(f"{argument} is empty")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{argument} has no encoding in UTF-8: {error.reason}") from None


def checked_mapping(argument: str, mapping: Any, kind: type[K]) -> dict[K, Any]:
    """Return the mapping, whose keys are of this type."""
    if not isinstance(mapping, Mapping):
        raise UsageError(f"{argument} must be a dict by {kind.__name__}, not {_shown(mapping)}")
    return {key: mapping[key] for key in checked_items(argument, list(mapping), kind)}


def checked_partitions(argument: str, partitions: Any) -> list[TopicPartition]:
    """Return the partitions, each once."""
    found = checked_items(argument, partitions, TopicPartition)
    for index, tp in enumerate(found):
        check_name(f"{argument}[{index}].topic", tp.topic)
        check_number(f"{argument}[{index}].partition", tp.partition, low=0, high=INT32_MAX)
    return list(dict.fromkeys(found))


def checked_by_partition(argument: str, mapping: Any) -> dict[TopicPartition, Any]:
    """Return the values by partition."""
    found = checked_mapping(argument, mapping, TopicPartition)
    checked_partitions(argument, list(found))
    return found


def check_number(argument: str, number: Any, *, low: int, high: int) -> None:
    """Check that it is an int in the range."""
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise UsageError(f"{argument} must be an int from {low} to {high}, not {_shown(number)}")


def check_count(argument: str, items: Collection[object]) -> None:
    """At most ITEMS_MAX."""
    if len(items) > ITEMS_MAX:
        raise UsageError(f"{argument} has {counted(len(items), 'item')}; the maximum of a call is {ITEMS_MAX:,}")


def checked_replicas(argument: str, replicas: Any) -> tuple[int, ...]:
    """Return the ids of the brokers of one partition."""
    if isinstance(replicas, (str, bytes)) or not isinstance(replicas, Sequence) or not replicas:
        raise UsageError(f"{argument} must be a list of broker ids, not {_shown(replicas)}")
    for index, replica in enumerate(replicas):
        check_number(f"{argument}[{index}]", replica, low=0, high=INT32_MAX)
    return tuple(replicas)


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, (int, float, str)) else ""
    return f"{type(value).__name__} {text}".strip() if len(text) <= 40 else type(value).__name__


def check_topic(argument: str, topic: NewTopic) -> None:
    """Check that it is a topic to create, with an assignment or numbers, and with texts as configurations."""
    check_name(f"{argument}.name", topic.name)
    if topic.assignment:
        if (topic.partitions, topic.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            raise UsageError(f"{argument} has an assignment; leave out partitions and replication_factor")
        check_assignment(f"{argument}.assignment", topic.assignment)
    if topic.partitions != BROKER_DEFAULT:
        check_number(f"{argument}.partitions", topic.partitions, low=1, high=INT32_MAX)
    if topic.replication_factor != BROKER_DEFAULT:
        check_number(f"{argument}.replication_factor", topic.replication_factor, low=1, high=(1 << 15) - 1)
    for name, value in checked_mapping(f"{argument}.configs", topic.configs, str).items():
        if not isinstance(value, str):
            raise UsageError(f"{argument}.configs['{name}'] must be a str, not {type(value).__name__} {value!r}")


def check_binding(argument: str, binding: AclBinding) -> None:
    """Check that it is an ACL that can be stored."""
    check_fields(argument, binding, pattern=ResourcePattern, entry=AclEntry)
    pattern, entry = binding
    check_fields(f"{argument}.pattern", pattern, type=AclResourceType, name=str, pattern_type=PatternType)
    check_fields(f"{argument}.entry", entry, principal=str, host=str, operation=Operation, permission=Permission)
    if problem := binding_problem(binding):
        raise UsageError(f"{argument}: {problem}")


def check_filter(argument: str, selection: AclFilter) -> None:
    """Check that it is a filter of ACLs; None selects everything."""
    check_fields(argument, selection, resource_type=AclResourceType, name=(str, type(None)), pattern_type=PatternType)
    check_fields(argument, selection, principal=(str, type(None)), host=(str, type(None)))
    check_fields(argument, selection, operation=Operation, permission=Permission)


def check_password(argument: str, password: Any) -> None:
    """Check that it is a password for at least one mechanism, with as many iterations as brokers accept."""
    if not isinstance(password, NewPassword):
        raise UsageError(f"{argument} must be a NewPassword, not {type(password).__name__}")
    check_fields(argument, password, password=str, mechanisms=tuple)
    if not password.password or not password.mechanisms:
        raise UsageError(f"{argument} has no password, or no mechanism")
    checked_items(f"{argument}.mechanisms", password.mechanisms, Mechanism)
    check_number(f"{argument}.iterations", password.iterations, low=ITERATIONS_MIN, high=ITERATIONS_MAX)


def check_fields(argument: str, item: object, **kinds: type | tuple[type, ...]) -> None:
    """Check that the fields of these names are of these types."""
    for name, kind in kinds.items():
        value = getattr(item, name)
        if not isinstance(value, kind):
            accepted = " or ".join(known.__name__ for known in (kind if isinstance(kind, tuple) else (kind,)))
            accepted = accepted.replace("NoneType", "None")
            raise UsageError(f"{argument}.{name} must be {accepted}, not {type(value).__name__}")


def check_assignment(argument: str, assignment: Any) -> None:
    """Check the ids of the brokers of each partition."""
    if isinstance(assignment, (str, bytes)) or not isinstance(assignment, Sequence):
        raise UsageError(f"{argument} must be a list with the broker ids of each partition")
    for index, replicas in enumerate(assignment):
        checked_replicas(f"{argument}[{index}]", replicas)


def check_resource(argument: str, resource: ConfigResource) -> None:
    """Check that it is a resource; a broker is named by its id."""
    if not isinstance(resource.type, ResourceType):
        raise UsageError(f"{argument}: the type must be a ResourceType, not {resource.type!r}")
    is_of_broker = resource.type in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}
    name: Any = resource.name
    if is_of_broker and isinstance(name, str) and (not name or _is_broker_id(name)):
        return
    if is_of_broker:
        raise UsageError(f"{argument}: the name must be the id of a broker as a str, not {resource.name!r}")
    check_name(f"{argument}: the name", resource.name)


def check_change(argument: str, change: ConfigChange) -> None:
    """Check that it is a change with a value, or a deletion without one."""
    check_name(f"{argument}.name", change.name)
    if not isinstance(change.operation, ConfigOperation):
        raise UsageError(f"{argument}.operation must be a ConfigOperation, not {change.operation!r}")
    if change.operation is ConfigOperation.DELETE:
        if change.value is not None:
            raise UsageError(f"{argument}: DELETE has no value")
    elif not isinstance(change.value, str):
        raise UsageError(f"{argument}.value must be a str, not {type(change.value).__name__}")


def check_entity(entity: tuple[Any, ...]) -> None:
    """Check that it is an entity of quotas: pairs of a type and a name, None for the default."""
    for part in entity:
        match part:
            case (str(), str() | None):
                continue
        raise UsageError(f"changes: an entity must be a tuple of (type, name or None), not {entity!r}")


def check_once(argument: str, names: Sequence[str]) -> None:
    """Names, none of which occurs twice."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise UsageError(f"{argument}[{index}]: '{name}' occurs twice")
        seen.add(name)


def _is_broker_id(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= _BROKER_ID_DIGITS and int(name) <= INT32_MAX
