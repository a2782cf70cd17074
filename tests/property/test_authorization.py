"""The decision agrees with a naive model of Kafka's rules, and the index with a set of ACLs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.security.access import Hosts, ResourceAccess, what_can, who_can
from kctl.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kctl.security.authorization import AccessPolicy, AclIndex, Client, decide, decide_on_any

NAMES = ["*", "a", "ab", "abc", "b", "ba", ""]
KINDS = [ResourceType.TOPIC, ResourceType.GROUP]
PRINCIPALS = ["User:alice", "User:bob", "User:*"]
HOSTS = ["1.1.1.1", "2.2.2.2", "*"]
OPERATIONS = [Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS]

entries = st.builds(
    AclEntry,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
patterns = st.builds(
    ResourcePattern,
    st.sampled_from(KINDS),
    st.sampled_from(NAMES[:-1]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
bindings = st.lists(st.builds(AclBinding, patterns, entries), max_size=12)
clients = st.builds(Client, st.sampled_from(PRINCIPALS[:2]), st.sampled_from(HOSTS[:2]))
requested = st.sampled_from([*OPERATIONS[1:], Operation.DESCRIBE_CONFIGS])


def matches(entry: AclEntry, client: Client, operations: set[Operation], permission: Permission) -> bool:
    return (
        entry.permission == permission
        and entry.operation in operations | {Operation.ALL}
        and (entry.principal == client.principal or entry.principal == "User:*")
        and (entry.host == client.host or entry.host == "*")
    )


def model(acls: list[AclBinding], client: Client, operation: Operation, kind: ResourceType, name: str) -> bool | None:
    """Allowed or not; None if the resource has no ACL."""
    own = [
        binding.entry
        for binding in acls
        if binding.pattern.type == kind
        and (
            binding.pattern.name in (name, "*")
            if binding.pattern.pattern_type == PatternType.LITERAL
            else name.startswith(binding.pattern.name)
        )
    ]
    if not own:
        return None
    if any(matches(entry, client, {operation}, Permission.DENY) for entry in own):
        return False
    operations = {operation}
    if operation == Operation.DESCRIBE:
        operations |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation == Operation.DESCRIBE_CONFIGS:
        operations |= {Operation.ALTER_CONFIGS}
    return any(matches(entry, client, operations, Permission.ALLOW) for entry in own)


@given(bindings, clients, requested, st.sampled_from(KINDS), st.sampled_from(NAMES), st.booleans())
def test_the_decision_is_that_of_the_model(
    acls: list[AclBinding], client: Client, operation: Operation, kind: ResourceType, name: str, is_open: bool
) -> None:
    expected = model(acls, client, operation, kind, name)
    decision = decide(AclIndex(acls), AccessPolicy(allows_without_acl=is_open), client, operation, kind, name)
    assert decision.is_allowed is (is_open if expected is None else expected)
    if decision.acl is not None:
        assert decision.acl in acls


@given(bindings, clients, requested)
def test_any_resource_is_allowed_if_one_of_all_names_is(
    acls: list[AclBinding], client: Client, operation: Operation
) -> None:
    """The names have a small alphabet; implied operations do not count, as in Kafka.

    A prefix is allowed although each longer name could be denied by itself, so the names include one that no rule has.
    """
    names = [*NAMES, "az", "abz", "abcz", "bz", "baz", "z", "*z"]
    direct = [acl for acl in acls if acl.entry.operation in {operation, Operation.ALL}]
    is_possible = any(model(direct, client, operation, ResourceType.TOPIC, name) for name in names)
    assert (
        decide_on_any(AclIndex(acls), AccessPolicy(), client, operation, ResourceType.TOPIC).is_allowed is is_possible
    )


policies = st.builds(
    AccessPolicy, st.frozensets(st.sampled_from([*PRINCIPALS, "User:root"]), max_size=1), st.booleans()
)
every_client = [Client(name, host) for name in [*PRINCIPALS, "User:root", "User:eve"] for host in [*HOSTS, "3.3.3.3"]]


def is_from(hosts: Hosts, host: str) -> bool:
    return host in hosts.allowed or ("*" in hosts.allowed and host not in hosts.denied)


@given(bindings, policies, requested, st.sampled_from(KINDS), st.sampled_from(NAMES))
def test_who_can_agrees_with_the_decision_for_each_client(
    acls: list[AclBinding], policy: AccessPolicy, operation: Operation, kind: ResourceType, name: str
) -> None:
    found = {access.principal: access.hosts for access in who_can(acls, policy, operation, kind, name)}
    for client in every_client:
        if client.principal == "User:*" or client.host == "*":
            continue  # They stand for all others.
        hosts = found.get(client.principal, found.get("User:*", Hosts()))
        decision = decide(AclIndex(acls), policy, client, operation, kind, name)
        assert is_from(hosts, client.host) is decision.is_allowed, (client, found)


idempotence = st.builds(
    AclBinding,
    st.just(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)),
    st.builds(
        AclEntry,
        st.sampled_from(PRINCIPALS),
        st.sampled_from(HOSTS),
        st.sampled_from([Operation.IDEMPOTENT_WRITE, Operation.ALTER]),
        st.sampled_from([Permission.ALLOW, Permission.DENY]),
    ),
)


@given(bindings, st.lists(idempotence, max_size=3), policies)
def test_who_can_counts_write_on_any_topic_for_idempotent_producers(
    others: list[AclBinding], own: list[AclBinding], policy: AccessPolicy
) -> None:
    """KIP-679: brokers since 2.8 decide in this way about a producer without a transactional id."""
    acls = [*others, *own]
    found = who_can(acls, policy, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    by_principal = {access.principal: access.hosts for access in found}
    index = AclIndex(acls)
    for client in every_client:
        if client.principal == "User:*" or client.host == "*":
            continue
        hosts = by_principal.get(client.principal, by_principal.get("User:*", Hosts()))
        is_allowed = (
            decide(index, policy, client, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME).is_allowed
            or decide_on_any(index, policy, client, Operation.WRITE, ResourceType.TOPIC).is_allowed
        )
        assert is_from(hosts, client.host) is is_allowed, (client, found)


def most_specific(found: list[ResourceAccess], kind: ResourceType, name: str) -> list[ResourceAccess]:
    """The rows that count for a resource."""
    wanted = [ResourcePattern(kind, name)]
    wanted += [ResourcePattern(kind, name[:end], PatternType.PREFIXED) for end in range(len(name), 0, -1)]
    wanted.append(ResourcePattern(kind, "*"))
    rows = ([access for access in found if access.pattern == pattern] for pattern in wanted)
    return next((some for some in rows if some), [])


@given(bindings, policies, st.sampled_from(KINDS), st.sampled_from([*NAMES, "az", "abz", "z"]))
def test_what_can_agrees_with_the_decision_for_each_resource(
    acls: list[AclBinding], policy: AccessPolicy, kind: ResourceType, name: str
) -> None:
    for client in every_client:
        if client.principal == "User:*" or client.host == "*":
            continue
        counting = most_specific(what_can(acls, policy, client.principal), kind, name)
        for operation in SUPPORTED_OPERATIONS[kind]:
            allowed = any(operation in access.operations and is_from(access.hosts, client.host) for access in counting)
            decision = decide(AclIndex(acls), policy, client, operation, kind, name)
            assert allowed is decision.is_allowed, (client, operation, counting)


@given(bindings, st.lists(st.tuples(patterns, st.lists(entries, max_size=3) | st.none()), max_size=8))
def test_an_index_that_was_changed_equals_one_that_was_built_at_once(
    acls: list[AclBinding], changes: list[tuple[ResourcePattern, list[AclEntry] | None]]
) -> None:
    index = AclIndex(acls)
    stored: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern, entry in acls:
        stored.setdefault(pattern, []).append(entry)
    unreadable = set()
    for pattern, changed in changes:
        index.replace(pattern, changed)
        stored[pattern] = changed or []
        unreadable.discard(pattern)
        if changed is None:
            unreadable.add(pattern)
    rebuilt = AclIndex(AclBinding(pattern, entry) for pattern, own in stored.items() for entry in own)
    for pattern in unreadable:
        rebuilt.replace(pattern, None)
    assert vars(index) | {"_entries": None} == vars(rebuilt) | {"_entries": None}
    assert set(index.bindings()) == set(rebuilt.bindings())
    assert index.count == rebuilt.count
