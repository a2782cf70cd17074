"""Names and values that a shell completes: of profiles, of properties, and of the cluster, which is asked for them.

A cluster has COMPLETION_WAIT_MS to respond, or as long as KCTL_COMPLETION_TIMEOUT says.  An error is no names: a shell
could not show it.  Nothing is asked of the user, and no value of a property is read from the cluster.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kctl.commands.completion.words import Expected, is_harmless
from kctl.limits import Subject, bound

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.commands.frame.invocation import Invocation
    from kctl.config.definition import Property

COMPLETION_WAIT_MS = bound(
    Subject.NAMED_FILES,
    "time that a cluster has to name what a shell completes; also KCTL_COMPLETION_TIMEOUT",
    1_000,
    "ms",
    on_excess="nothing is completed",
)
_TIMEOUT_VARIABLE = "KCTL_COMPLETION_TIMEOUT"
_RESOURCES = {"topic": "topics", "broker": "brokers", "logger": "brokers", "user": "users", "group": "groups"}
"""Kinds of names by the type of a resource."""
_SIDES = {"topics-from": "from", "topics-to": "to"}
_CLUSTER_OPTIONS = {
    "--bootstrap-server": "bootstrap_server",
    "--command-config": "command_config",
    "--profile": "profile",
}
_QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


def candidates(expected: Expected) -> list[tuple[str, str]]:
    """Return the values that fit, each with a text about it, which may be empty.

    One that ends with = needs a value.
    """
    values = expected.values
    kind = values.kind
    if kind == "resources":
        kind = next((_RESOURCES[word] for word in expected.given if word in _RESOURCES), "")
    if expected.words:
        found: Iterable[tuple[str, str]] = expected.words
    elif kind == "choices":
        found = ((choice, "") for choice in values.choices)
    elif kind == "profiles":
        found = ((name, "") for name in _profiles())
    elif kind == "operations":
        found = ((name, "") for name in _operations())
    elif kind.endswith(("-properties", "-property-names")):
        found = _properties(kind, expected)
    elif kind in _QUERIES or kind in _SIDES:
        found = ((name, "") for name in _names_of_cluster(kind, expected))
    else:
        found = ()
    return [(word, text) for word, text in found if word.startswith(expected.typed)]


def _profiles() -> Iterable[str]:
    from kctl.commands.frame.profiles.profile_store import load_profiles, profiles_path  # noqa: PLC0415 - rarely needed

    profiles = load_profiles(profiles_path(os.environ))
    return () if profiles is None else sorted(filter(is_harmless, profiles.profiles))


def _operations() -> Iterable[str]:
    from kctl.security.acls import SUPPORTED_OPERATIONS  # noqa: PLC0415 - rarely needed

    labels = (operation.label.lower() for operations in SUPPORTED_OPERATIONS.values() for operation in operations)
    return ["all", *dict.fromkeys(labels)]


# Properties: their names, and the values that their declarations name.


def _properties(kind: str, expected: Expected) -> list[tuple[str, str]]:
    """Return `NAME=`, or only names; after the =, values."""
    subject, _, what = kind.partition("-")
    if subject == "resource":
        subject = f"dynamic {expected.given[0]}" if expected.given else ""
    declared = _declared(subject)
    name, equals, typed = expected.typed.partition("=")
    if not equals:
        end = "" if what == "property-names" else "="
        return [(name + end, described.doc if described else "") for name, described in sorted(declared.items())]
    described = declared.get(name)
    if described is None:
        return []
    head = typed[: typed.rfind(",") + 1] if described.kind.type.name == "LIST" else ""
    return [(f"{name}={head}{value}", "") for value in _values(described)]


def _declared(subject: str) -> Mapping[str, Property | None]:
    """Return the properties of topics, brokers and so on, by name; without a declaration where kctl only passes them
    on.
    """
    match subject:
        case "topic" | "dynamic topic":
            from kctl.config.topic import TOPIC_PROPERTIES  # noqa: PLC0415 - rarely needed

            return TOPIC_PROPERTIES
        case "broker":
            from kctl.config.broker import BROKER_PROPERTIES  # noqa: PLC0415 - rarely needed

            return BROKER_PROPERTIES
        case "dynamic broker":
            from kctl.config.definition import Dynamic  # noqa: PLC0415 - rarely needed
            from kctl.config.dynamic import DYNAMIC_ONLY_PROPERTIES  # noqa: PLC0415 - rarely needed

            declared = {**_declared("broker"), **DYNAMIC_ONLY_PROPERTIES}
            return {
                name: property_
                for name, property_ in declared.items()
                if property_ and property_.dynamic is not Dynamic.READ_ONLY
            }
        case "client":
            from kctl.client.properties.table import PROPERTIES  # noqa: PLC0415 - rarely needed

            return dict.fromkeys(PROPERTIES)
        case "dynamic user" | "dynamic client" | "dynamic ip":
            return dict.fromkeys(_QUOTAS)
    return {}


def _values(described: Property) -> list[str]:
    """Return the values that the declaration names, and the default; none for a password."""
    if described.sensitive:
        return []
    if described.kind.type.name == "BOOLEAN":
        return ["true", "false"]
    named = [choice for rule in described.rules for choice in rule.choices]
    default = described.format(described.default) if described.default is not None else None
    return list(dict.fromkeys([*named, *([default] if default else [])]))


# Names of the cluster.


def _names_of_cluster(kind: str, expected: Expected) -> list[str]:
    """Return the names, sorted; internal topics only if an underscore is typed."""
    query = _QUERIES["topics" if kind in _SIDES else kind]
    found: list[str] = []

    def ask() -> None:
        # A shell shows neither what is wrong nor a traceback.
        with contextlib.suppress(Exception):
            found.extend(_invocation(kind, expected).on_cluster(query))

    # Not only --timeout: the name of a broker may take long to look up.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_wait_ms() / 1000)
    names = sorted(filter(is_harmless, set(found)))
    return [name for name in names if not name.startswith("__") or expected.typed.startswith("_")]


def _wait_ms() -> int:
    from kctl.commands.frame.options.values import parse_duration_ms  # noqa: PLC0415 - only where a cluster is asked

    given = os.environ.get(_TIMEOUT_VARIABLE)
    return parse_duration_ms(given) if given else COMPLETION_WAIT_MS


def _invocation(kind: str, expected: Expected) -> Invocation:
    """Return the invocation of the options on the command line, with a console that shows nothing.

    Raises UsageError.
    """
    from kctl.commands.frame.invocation import Invocation  # noqa: PLC0415 - imports the client
    from kctl.commands.frame.options.option_types import Duration  # noqa: PLC0415 - same
    from kctl.output.console import Console  # noqa: PLC0415 - same

    options = dict(expected.options)
    given: dict[str, Any] = {name: options.get(flag) for flag, name in _CLUSTER_OPTIONS.items()}
    given["resolve"] = [value for flag, value in expected.options if flag == "--resolve"]
    given["timeout"] = Duration(f"{_wait_ms()}ms")
    run = Invocation(Console(io.StringIO(), io.StringIO(), quiet=True), given)
    side = _SIDES.get(kind)
    if side is None:
        return run
    return run.of_side(*(options.get(f"--{side}-{what}") for what in ("cluster", "config", "profile")))


async def _topics(client: ClusterClient) -> list[str]:
    return list((await client.metadata()).topics)


async def _brokers(client: ClusterClient) -> list[str]:
    return [str(broker) for broker in (await client.metadata([])).brokers]


async def _groups(client: ClusterClient) -> list[str]:
    from kctl.admin.groups.groups import list_groups  # noqa: PLC0415 - only for this kind

    return [group.group_id for group in (await list_groups(client))[0]]


async def _transactions(client: ClusterClient) -> list[str]:
    from kctl.admin.topics.transactions import list_transactions  # noqa: PLC0415 - only for this kind

    return [listed.transactional_id for listed in (await list_transactions(client))[0]]


async def _users(client: ClusterClient) -> list[str]:
    from kctl.admin.security.users import describe_users  # noqa: PLC0415 - only for this kind

    return [user.outcome.name for user in await describe_users(client)]


async def _principals(client: ClusterClient) -> list[str]:
    return [f"User:{name}" for name in await _users(client)]


_QUERIES: Mapping[str, Callable[[ClusterClient], Awaitable[list[str]]]] = {
    "topics": _topics,
    "brokers": _brokers,
    "groups": _groups,
    "transactions": _transactions,
    "users": _users,
    "principals": _principals,
}
"""By the kind of names."""
