"""The rule that decides.  Most cases are those of Kafka's AclAuthorizerTest, as tables."""

from __future__ import annotations

import pytest

from kctl.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kctl.security.authorization import (
    AccessPolicy,
    AclIndex,
    Client,
    Reason,
    decide,
    decide_on_any,
    parse_super_users,
)
from tests.rows import for_rows

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = Permission.ALLOW, Permission.DENY
O = Operation  # noqa: E741

ALICE = Client("User:alice", "192.168.1.1")
BOB = Client("User:bob", "192.168.1.1")


def acl(text: str, principal: str = "User:alice", host: str = "*", *, kind: ResourceType = TOPIC) -> AclBinding:
    """`allow read orders`; a name that ends in `~` is a prefix."""
    permission, operation, name = text.split()
    shape = PatternType.PREFIXED if name.endswith("~") else PatternType.LITERAL
    entry = AclEntry(principal, host, Operation.of_label(operation), Permission.of_label(permission))
    return AclBinding(ResourcePattern(kind, name.rstrip("~"), shape), entry)


def allowed(acls: list[AclBinding], operation: Operation, name: str = "orders", client: Client = ALICE) -> bool:
    return decide(AclIndex(acls), AccessPolicy(), client, operation, TOPIC, name).is_allowed


@for_rows(
    "acls, operation, name, expected",
    [
        ([], O.READ, "orders", False),
        ([acl("allow read orders")], O.READ, "orders", True),
        ([acl("allow read orders")], O.WRITE, "orders", False),
        ([acl("allow read orders")], O.READ, "orders2", False),
        ([acl("allow all orders")], O.WRITE, "orders", True),
        ([acl("allow read *")], O.READ, "anything", True),
        ([acl("allow read ord~")], O.READ, "orders", True),
        ([acl("allow read ord~")], O.READ, "ord", True),
        ([acl("allow read ord~")], O.READ, "or", False),
        ([acl("allow read o~"), acl("deny read ord~")], O.READ, "orders", False),
        ([acl("allow read orders"), acl("deny read *")], O.READ, "orders", False),
        ([acl("allow read orders"), acl("deny read orders", host="192.168.1.1")], O.READ, "orders", False),
        ([acl("allow read orders"), acl("deny read orders", host="192.168.1.2")], O.READ, "orders", True),
        ([acl("allow read orders"), acl("deny write orders")], O.READ, "orders", True),
        ([acl("allow all orders"), acl("deny all orders", "User:bob")], O.READ, "orders", True),
        ([acl("allow all orders"), acl("deny all orders", "User:*")], O.READ, "orders", False),
        ([acl("allow read orders", "User:*")], O.READ, "orders", True),
        ([acl("allow read orders", "Group:*")], O.READ, "orders", False),
        ([acl("allow read orders", "User:Alice")], O.READ, "orders", False),
        ([acl("allow read orders", host="192.168.1.1")], O.READ, "orders", True),
        ([acl("allow read orders", host="192.168.1.2")], O.READ, "orders", False),
        ([acl("allow read orders", kind=GROUP)], O.READ, "orders", False),
    ],
)
def test_acls_decide(acls: list[AclBinding], operation: Operation, name: str, expected: bool) -> None:
    assert allowed(acls, operation, name) is expected


IMPLIED = {
    O.DESCRIBE: {O.READ, O.WRITE, O.DELETE, O.ALTER},
    O.DESCRIBE_CONFIGS: {O.ALTER_CONFIGS},
}


@for_rows("granted", [operation for operation in O if operation is not O.ANY])
@for_rows("requested", [operation for operation in O if operation not in {O.ANY, O.ALL}])
def test_allowed_operations_imply_others_and_denied_ones_do_not(granted: Operation, requested: Operation) -> None:
    is_implied = granted in {requested, O.ALL, *IMPLIED.get(requested, ())}
    assert allowed([acl(f"allow {granted.label} orders")], requested) is is_implied
    # To be denied an operation implies nothing.
    is_denied = granted in {requested, O.ALL}
    assert allowed([acl("allow all orders"), acl(f"deny {granted.label} orders")], requested) is not is_denied


def test_super_users_are_not_denied() -> None:
    policy = AccessPolicy(parse_super_users("User:bob; User:alice"))
    decision = decide(AclIndex([acl("deny all *", "User:*")]), policy, ALICE, O.WRITE, TOPIC, "orders")
    assert decision == (True, Reason.SUPER_USER, None, None)


@pytest.mark.parametrize("text", ["alice", "User:alice;;User:bob", "User:alice,bob;x"])
def test_super_users_that_are_not_principals_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="principal"):
        parse_super_users(text)


def test_empty_super_users_are_ignored() -> None:
    assert parse_super_users("") == frozenset()
    assert parse_super_users("User:a; User:b;") == {"User:a", "User:b"}


def test_a_resource_without_acls_is_open_if_the_property_is_set() -> None:
    policy = AccessPolicy(allows_without_acl=True)
    acls = AclIndex([acl("allow read orders", "User:bob")])
    assert decide(acls, policy, ALICE, O.READ, TOPIC, "other") == (True, Reason.NO_ACL_ON_RESOURCE, None, None)
    assert decide(acls, policy, ALICE, O.READ, TOPIC, "orders") == (False, Reason.NO_ACL_ALLOWS, None, None)
    assert not decide(AclIndex([acl("allow read o~", "User:bob")]), policy, ALICE, O.READ, TOPIC, "other").is_allowed
    assert not decide(AclIndex([acl("allow read *", "User:bob")]), policy, ALICE, O.READ, TOPIC, "other").is_allowed


def test_the_decision_names_the_rule() -> None:
    rules = [acl("allow read ord~"), acl("deny write orders", "User:*", "192.168.1.1")]
    index = AclIndex(rules)
    assert decide(index, AccessPolicy(), ALICE, O.DESCRIBE, TOPIC, "orders").acl == rules[0]
    denied = decide(index, AccessPolicy(), ALICE, O.WRITE, TOPIC, "orders")
    assert denied.acl == rules[1]
    assert denied.rule == "Deny User:* Write on Topic:LITERAL:orders from host 192.168.1.1"
    assert decide(index, AccessPolicy(), ALICE, O.CREATE, TOPIC, "orders").rule == "no ACL allows it"


@pytest.mark.parametrize(
    "pattern",
    [
        ResourcePattern(TOPIC, "orders"),
        ResourcePattern(TOPIC, "*"),
        ResourcePattern(TOPIC, "ord", PatternType.PREFIXED),
    ],
)
def test_acls_that_cannot_be_read_deny_what_they_apply_to(pattern: ResourcePattern) -> None:
    index = AclIndex([acl("allow all o~"), acl("allow all customers")])
    index.replace(pattern, None)
    for policy in (AccessPolicy(), AccessPolicy(allows_without_acl=True)):
        decision = decide(index, policy, ALICE, O.READ, TOPIC, "orders")
        assert decision == (False, Reason.UNREADABLE, None, pattern)
    assert decide(index, AccessPolicy(frozenset({"User:alice"})), ALICE, O.READ, TOPIC, "orders").is_allowed
    assert decide(index, AccessPolicy(), ALICE, O.READ, TOPIC, "customers").is_allowed is (pattern.name != "*")
    index.replace(pattern, ())
    assert decide(index, AccessPolicy(), ALICE, O.READ, TOPIC, "orders").is_allowed


def test_replacing_the_acls_of_a_pattern_leaves_no_trace_of_the_old_ones() -> None:
    index = AclIndex([acl("allow read orders"), acl("allow write orders"), acl("allow read o~")])
    assert index.count == 3
    index.replace(ResourcePattern(TOPIC, "orders"), [acl("allow write orders").entry])
    index.replace(ResourcePattern(TOPIC, "o", PatternType.PREFIXED), ())
    assert index.count == 1
    assert not decide(index, AccessPolicy(), ALICE, O.READ, TOPIC, "orders").is_allowed
    assert list(index.bindings()) == [acl("allow write orders")]
    assert not decide_on_any(index, AccessPolicy(), ALICE, O.READ, TOPIC).is_allowed


@for_rows(
    "acls, expected",
    [
        ([], False),
        (["allow write orders"], True),
        (["allow all orders"], True),
        (["allow read orders"], False),
        (["allow write ord~"], True),
        (["allow write *"], True),
        (["allow write *", "deny write *"], False),
        (["allow write *", "deny write orders"], True),
        (["allow write *", "deny write o~"], True),
        (["allow write orders", "deny write orders"], False),
        (["allow write orders", "deny all orders"], False),
        (["allow write orders", "deny write o~"], False),
        (["allow write ord~", "deny write o~"], False),
        (["allow write ord~", "deny write ord~"], False),
        (["allow write ord~", "deny write orders"], True),
        (["allow write ord~", "deny write orders~"], True),
        (["allow write orders", "deny write orders2"], True),
        (["allow write a", "allow write b", "deny write a"], True),
        (["allow write orders", "deny read orders"], True),
    ],
)
def test_whether_any_resource_is_allowed(acls: list[str], expected: bool) -> None:
    index = AclIndex([acl(text) for text in acls])
    assert decide_on_any(index, AccessPolicy(), ALICE, O.WRITE, TOPIC).is_allowed is expected
    assert not decide_on_any(index, AccessPolicy(), BOB, O.WRITE, TOPIC).is_allowed
    assert not decide_on_any(index, AccessPolicy(), ALICE, O.WRITE, GROUP).is_allowed


def test_any_resource_with_wildcards_of_user_and_host() -> None:
    rules = [acl("allow write orders", "User:*"), acl("deny write orders", "User:*", "10.0.0.1")]
    index = AclIndex(rules)
    assert decide_on_any(index, AccessPolicy(), ALICE, O.WRITE, TOPIC).is_allowed
    assert not decide_on_any(index, AccessPolicy(), Client("User:alice", "10.0.0.1"), O.WRITE, TOPIC).is_allowed


def test_any_resource_where_resources_without_acls_are_open() -> None:
    policy = AccessPolicy(allows_without_acl=True)
    assert decide_on_any(AclIndex(), policy, ALICE, O.WRITE, TOPIC).is_allowed
    assert not decide_on_any(AclIndex([acl("deny write *")]), policy, ALICE, O.WRITE, TOPIC).is_allowed


def test_any_resource_of_a_super_user() -> None:
    policy = AccessPolicy(frozenset({"User:alice"}))
    assert decide_on_any(AclIndex([acl("deny write *")]), policy, ALICE, O.WRITE, TOPIC).is_allowed


def test_acls_that_cannot_be_read_count_as_denied_for_any_resource() -> None:
    index = AclIndex([acl("allow write orders")])
    index.replace(ResourcePattern(TOPIC, "*"), None)
    assert not decide_on_any(index, AccessPolicy(), ALICE, O.WRITE, TOPIC).is_allowed
    index.replace(ResourcePattern(TOPIC, "*"), ())
    index.replace(ResourcePattern(TOPIC, "o", PatternType.PREFIXED), None)
    assert not decide_on_any(index, AccessPolicy(), ALICE, O.WRITE, TOPIC).is_allowed
