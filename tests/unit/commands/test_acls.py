"""The rules, documents and output of `kctl acls`, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kctl.admin.security.acls import Resources, Rules, binding_of, bindings, difference, read_document, write_document
from kctl.cli import main
from kctl.commands.acls.rules import hosts_of_stored_acls, hosts_without_effect
from kctl.commands.compat.texts.java import KAFKA_3, KAFKA_4, KAFKA_28
from kctl.commands.compat.texts.resources import adding_unless_present, listed
from kctl.errors import UsageError
from kctl.protocol.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kctl.security.acls import AclBinding, Operation, PatternType
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

BOB = ("User:bob",)


def texts(acls: list[AclBinding]) -> list[str]:
    return [f"{acl.entry.operation.label} {acl.pattern}" for acl in acls]


def test_a_producer_and_a_consumer_need_what_kafkas_tool_gives_them() -> None:
    resources = Resources(topics=("t",), groups=("g",), transactional_ids=("x",), pattern_type=PatternType.PREFIXED)
    acls = bindings(resources, Rules(allowed=BOB), is_producer=True, is_consumer=True, is_idempotent=True)
    assert texts(acls) == [
        "Write Topic:PREFIXED:t",
        "Describe Topic:PREFIXED:t",
        "Create Topic:PREFIXED:t",
        "Read Topic:PREFIXED:t",
        "Read Group:PREFIXED:g",
        "Write TransactionalId:PREFIXED:x",
        "Describe TransactionalId:PREFIXED:x",
        "IdempotentWrite Cluster:LITERAL:kafka-cluster",
    ]


def test_all_combinations_are_made() -> None:
    rules = Rules(allowed=BOB, denied=("User:eve",), operations=(Operation.READ, Operation.WRITE), hosts=("1", "2"))
    acls = bindings(Resources(topics=("a", "b")), rules, is_idempotent=False)
    assert len(set(acls)) == len(acls) == 16


@for_rows(
    "resources, rules, roles, reason",
    [
        (Resources(topics=("t",)), Rules(operations=(Operation.READ,)), {}, "--allow or --deny"),
        (Resources(topics=("t",)), Rules(allowed=("bob",), operations=(Operation.READ,)), {}, "Type:name"),
        (Resources(topics=("t",)), Rules(allowed=BOB), {}, "--operation"),
        (Resources(), Rules(allowed=BOB, operations=(Operation.READ,)), {}, "a resource"),
        (Resources(groups=("g",)), Rules(allowed=BOB, operations=(Operation.WRITE,)), {}, "no operation Write"),
        (Resources(groups=("g",)), Rules(allowed=BOB), {"is_producer": True}, "need --topic"),
        (Resources(topics=("t",)), Rules(allowed=BOB), {"is_consumer": True}, "needs --group"),
        (Resources(topics=("t",)), Rules(denied=BOB), {"is_producer": True}, "leave out"),
        (Resources(topics=("t",)), Rules(allowed=BOB), {"is_idempotent": True}, "--producer"),
    ],
)
def test_what_makes_no_rule_is_refused(resources: Resources, rules: Rules, roles: dict[str, bool], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        bindings(resources, rules, **{"is_idempotent": False, **roles})


def some_acls() -> list[AclBinding]:
    resources = Resources(topics=("ü", "a"), is_cluster=True)
    return bindings(
        resources, Rules(allowed=BOB, denied=("User:*",), operations=(Operation.ALTER,)), is_idempotent=False
    )


def test_a_document_is_read_as_it_was_written() -> None:
    text = write_document(some_acls())
    assert sorted(read_document(text.encode(), "f")) == sorted(some_acls())
    assert write_document(read_document(text.encode(), "f")) == text
    assert read_document(write_document([]).encode(), "f") == []


def test_the_difference_of_two_sets_of_acls() -> None:
    acls = sorted(some_acls())
    assert difference(acls[1:], acls[:-1]) == ([acls[-1]], [acls[0]])


GOOD = {
    "resource_type": "topic",
    "resource_name": "t",
    "principal": "User:a",
    "operation": "read",
    "permission": "allow",
}


@for_rows(
    "document, reason",
    [
        ("{", "not JSON: line 1, column 2: expecting property name"),
        ('{"version":1,"acls":[],"acls":[]}', "'acls' is given twice"),
        ('{"version":NaN}', "NaN is not a number"),
        ("[]", "version"),
        ({"version": 2, "acls": []}, "version"),
        ({"version": 1, "acls": [], "more": 1}, "nothing else"),
        ({"version": 1, "acls": [GOOD, {}]}, "ACL 2: has no resource_type"),
        ({"version": 1, "acls": [GOOD | {"hosts": "*"}]}, "unknown field hosts"),
        ({"version": 1, "acls": [GOOD | {"operation": "reed"}]}, "'reed' is not one of"),
        ({"version": 1, "acls": [GOOD | {"principal": "a"}]}, "Type:name"),
        ({"version": 1, "acls": [GOOD | {"host": 1}]}, "text"),
        ({"version": 1, "acls": [7]}, "an object"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(document: object, reason: str) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(UsageError, match=f"^f: .*{reason}"):
        read_document(text.encode(), "f")


def test_the_output_of_kafkas_tool() -> None:
    """tests/integration/jvm/test_shared_acls.py compares with the tools themselves."""
    rules = Rules(allowed=BOB, operations=(Operation.READ, Operation.WRITE))
    acls = bindings(Resources(topics=("t",)), rules, is_idempotent=False)
    pattern = "ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)"
    read, write = (
        f"(principal=User:bob, host=*, operation={name}, permissionType=ALLOW)" for name in ("READ", "WRITE")
    )
    for compat in (KAFKA_28, KAFKA_3):
        assert listed(compat, acls) == f"Current ACLs for resource `{pattern}`: \n \t{read}\n\t{write} \n\n"
    assert listed(KAFKA_4, acls) == f"Current ACLs for resource `{pattern}`:\n\t{read}\n\t{write}\n\n"
    assert adding_unless_present(acls, acls[:1]) == (
        f"Acl (pattern={pattern}, entry={read}) already exists.\nAdding ACLs for resource `{pattern}`: \n \t{write}\n\n"
    )


@pytest.mark.parametrize("compat", [KAFKA_28, KAFKA_3, KAFKA_4])
def test_the_output_of_kafkas_tool_for_principals_has_a_title_for_each(kctl: Kctl, compat: str) -> None:
    acl = AclDescription(principal="User:bob", host="*", operation=3, permission_type=3)
    resource = DescribeAclsResource(resource_type=2, resource_name="t", pattern_type=3, acls=[acl])
    response = DescribeAclsResponse(error_code=0, error_message=None, resources=[resource])
    with FakeCluster() as cluster:
        cluster.intercept(DescribeAclsRequest, lambda _: response)
        options = f"--compat {compat} --bootstrap-server {cluster.bootstrap}"
        blocks = kctl(f"acls list {options}").out
        ran = kctl(f"acls list --allow User:bob --deny User:bob --deny User:eve {options}")
    assert "principal=User:bob" in blocks
    assert ran.out == f"ACLs for principal `User:bob`\n{blocks}ACLs for principal `User:eve`\n"


@for_rows(
    "words, status, reason",
    [
        ("User:bob read topic:t", 0, "allowed by ACL"),
        ("User:bob describe topic:t", 0, "allowed by ACL, because Read implies Describe"),
        ("User:bob write topic:t", 3, "no ACL allows it"),
        ("User:bob read topic:other", 3, "the resource has no ACL"),
        ("User:bob read topic:t --host 10.0.0.1", 3, "denied by ACL"),
        ("User:bob read topic:t --host fe80::1", 3, "denied by ACL"),
        ("User:bob read topic:t --host fe80::2", 0, "allowed by ACL"),
        ("User:eve read topic:t", 3, "no ACL allows it"),
    ],
)
def test_check_works_from_an_exported_document(
    words: str, status: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deny = GOOD | {"principal": "User:*", "host": "10.0.0.1", "permission": "deny"}
    deny_6 = deny | {"host": "fe80:0:0:0:0:0:0:1"}
    path = tmp_path / "acls.json"
    path.write_text(json.dumps({"version": 1, "acls": [GOOD | {"principal": "User:bob"}, deny, deny_6]}))
    assert main(["acls", "check", *words.split(), "--from", str(path), "--format", "json"]) == status
    reported = capsys.readouterr()
    assert json.loads(reported.out)["reason"] == reason
    assert "super.users" in reported.err


@pytest.mark.parametrize("host", ["zz", "10.0.0.256", "localhost"])
def test_host_of_a_check_is_an_address(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["acls", "check", "User:bob", "read", "topic:t", "--from", "/dev/null", "--host", host]
    assert main(line) == 2
    assert f"--host takes an IP address, such as 192.0.2.4, not '{host}'" in capsys.readouterr().err


ADD = ("acls", "add", "--deny", "User:bob", "--operation", "read", "--topic", "t", "--dry-run", "--format", "json")


@pytest.mark.parametrize(
    ("given", "stored"),
    [("*", "*"), ("10.0.0.1", "10.0.0.1"), ("FE80::1", "fe80:0:0:0:0:0:0:1"), ("::ffff:10.0.0.1", "10.0.0.1")],
)
def test_the_host_of_a_new_acl_is_in_the_form_that_brokers_compare(
    given: str, stored: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another form of the address would match no client, so that a denial had no effect."""
    assert main([*ADD, "--host", given]) == 0
    (planned,) = json.loads(capsys.readouterr().out)
    assert planned["host"] == stored


@pytest.mark.parametrize("host", ["localhost", "10.0.0.0/8", "10.0.0.*"])
def test_a_host_that_matches_no_client_is_refused(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ADD, "--host", host]) == 2
    assert f"--host takes * or an IP address, such as 192.0.2.4, not '{host}'" in capsys.readouterr().err


def test_stored_acls_are_selected_by_the_host_as_given_and_as_brokers_compare_it() -> None:
    assert hosts_of_stored_acls(["::1", "*", "localhost"]) == ["::1", "*", "localhost", "0:0:0:0:0:0:0:1"]
    assert hosts_of_stored_acls(None) == []


def test_a_document_with_hosts_that_match_no_client_is_warned_about() -> None:
    acls = [
        binding_of(GOOD | {"host": host}) for host in ("*", "10.0.0.1", "0:0:0:0:0:0:0:1", "::1", "localhost", "::1")
    ]
    assert hosts_without_effect(acls) == [
        "ACLs with the host '::1' never apply, because no client has this address; write 0:0:0:0:0:0:0:1",
        "ACLs with the host 'localhost' never apply, because no client has this address",
    ]


@pytest.mark.parametrize("resource", ["t", "topic:", "any:x", "thing:x"])
def test_what_is_not_a_resource(resource: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acls", "check", "User:bob", "read", resource, "--from", "/dev/null"]) == 2
    assert "is not a resource" in capsys.readouterr().err
