"""ACLs and filters, with the cases of Kafka's AclBinding and ResourcePatternFilter tests as tables."""

from __future__ import annotations

import pytest

from kctl.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    binding_problem,
    principal_problem,
)
from tests.rows import for_rows

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED, ANY, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY, PatternType.MATCH
ENTRY = AclEntry("User:bob", "127.0.0.1", Operation.ALL, Permission.ALLOW)


@for_rows(
    "member, label",
    [
        (ResourceType.TRANSACTIONAL_ID, "TransactionalId"),
        (ResourceType.DELEGATION_TOKEN, "DelegationToken"),
        (Operation.IDEMPOTENT_WRITE, "IdempotentWrite"),
        (Operation.ALL, "All"),
        (Permission.DENY, "Deny"),
        (PatternType.PREFIXED, "Prefixed"),
    ],
)
def test_names_are_those_of_kafka_in_znodes(member: Operation, label: str) -> None:
    assert member.label == label
    for text in (label, label.lower(), label.upper(), member.name, member.name.lower().replace("_", "-")):
        assert type(member).of_label(text) is member


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'reed' is not one of .*Read, Write"):
        Operation.of_label("reed")


@for_rows(
    "pattern, name, applies",
    [
        (("orders", LITERAL), "orders", True),
        (("orders", LITERAL), "orders2", False),
        (("orders", PREFIXED), "orders2", True),
        (("orders", PREFIXED), "orders", True),
        (("orders", PREFIXED), "order", False),
        (("*", LITERAL), "anything", True),
        (("*", PREFIXED), "anything", False),
        (("*", PREFIXED), "*x", True),
    ],
)
def test_a_pattern_applies_to_names(pattern: tuple[str, PatternType], name: str, applies: bool) -> None:
    assert ResourcePattern(TOPIC, *pattern).applies_to(name) is applies


@for_rows(
    "selection, selected",
    [
        (AclFilter(), True),
        (AclFilter(TOPIC), True),
        (AclFilter(GROUP), False),
        (AclFilter(TOPIC, "orders"), True),
        (AclFilter(TOPIC, "orders", LITERAL), False),
        (AclFilter(TOPIC, "orders", PREFIXED), True),
        (AclFilter(TOPIC, "orders2", PREFIXED), False),
        (AclFilter(TOPIC, "orders2", MATCH), True),
        (AclFilter(TOPIC, "order", MATCH), False),
        (AclFilter(TOPIC, "orders2", ANY), False),
        (AclFilter(TOPIC, None, MATCH), True),
        (AclFilter(principal="User:bob"), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host="*"), False),
        (AclFilter(operation=Operation.ALL), True),
        (AclFilter(operation=Operation.READ), False),
        (AclFilter(permission=Permission.DENY), False),
    ],
)
def test_a_filter_selects_acls(selection: AclFilter, selected: bool) -> None:
    assert selection.selects(AclBinding(ResourcePattern(TOPIC, "orders", PREFIXED), ENTRY)) is selected


@pytest.mark.parametrize(
    ("selection", "patterns"),
    [
        (AclFilter(TOPIC, "a", LITERAL), [LITERAL]),
        (AclFilter(TOPIC, "a", ANY), [LITERAL, PREFIXED]),
        (AclFilter(TOPIC, "a", MATCH), []),
        (AclFilter(TOPIC, None, LITERAL), []),
        (AclFilter(ResourceType.ANY, "a", LITERAL), []),
    ],
)
def test_the_patterns_that_a_filter_names(selection: AclFilter, patterns: list[PatternType]) -> None:
    assert [pattern.pattern_type for pattern in selection.exact_patterns()] == patterns


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_text_that_is_not_a_principal(text: str) -> None:
    assert principal_problem(text) is not None


def test_a_principal_may_contain_colons() -> None:
    assert principal_problem("User:CN=a:b,O=c") is None


@for_rows(
    "pattern, entry, reason",
    [
        (ResourcePattern(TOPIC, "t"), ENTRY, None),
        (ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), ENTRY, None),
        (ResourcePattern(ResourceType.CLUSTER, "other"), ENTRY, "the only name"),
        (ResourcePattern(TOPIC, ""), ENTRY, "empty"),
        (ResourcePattern(ResourceType.ANY, "t"), ENTRY, "a type"),
        (ResourcePattern(TOPIC, "t", MATCH), ENTRY, "a type"),
        (ResourcePattern(TOPIC, "t"), ENTRY._replace(operation=Operation.ANY), "one operation"),
        (ResourcePattern(TOPIC, "t"), ENTRY._replace(permission=Permission.ANY), "one operation"),
        (ResourcePattern(TOPIC, "t"), ENTRY._replace(host=""), "host"),
        (ResourcePattern(TOPIC, "t"), ENTRY._replace(principal="bob"), "principal"),
    ],
)
def test_what_cannot_be_an_acl(pattern: ResourcePattern, entry: AclEntry, reason: str | None) -> None:
    problem = binding_problem(AclBinding(pattern, entry))
    assert problem is None if reason is None else reason in (problem or "")
