"""Every command that shows rows writes a document of json and yaml, also if there is nothing to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.output.shown import shown_by
from kctl.commands.frame.root import all_commands
from kctl.commands.topics.options import TopicChangeRow
from kctl.output.console import columns_of
from kctl.protocol.apis import delete_acls, describe_acls
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

LISTS = [
    (noun, verb)
    for noun, verbs in all_commands().items()
    for verb, command in verbs.items()
    if (shown := shown_by(command.callback)) is not None and shown.is_list
]
ACL = describe_acls.AclDescription(principal="User:bob", host="*", operation=3, permission_type=3)
TOPIC_HEADER = ",".join(column.name for column in columns_of(TopicChangeRow))


@pytest.fixture
def acls(cluster: FakeCluster) -> list[describe_acls.AclDescription]:
    """The ACLs of the topic `orders`."""
    found: list[describe_acls.AclDescription] = []

    def describe(_: Any) -> Any:
        resource = describe_acls.DescribeAclsResource(
            resource_type=2, resource_name="orders", pattern_type=3, acls=list(found)
        )
        return describe_acls.DescribeAclsResponse(error_code=0, error_message=None, resources=[resource])

    cluster.intercept(describe_acls.DescribeAclsRequest, describe)
    return found


@for_rows("noun, verb", LISTS)
@for_rows("format_", ["json", "yaml"])
def test_command_without_rows_writes_an_empty_list(
    noun: str,
    verb: str,
    format_: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each command with a function that finds nothing and returns."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    command = all_commands()[noun][verb]

    def find_nothing(**_: object) -> ExitStatus:
        return ExitStatus.DONE

    find_nothing.kctl_shown = shown_by(command.callback)  # type: ignore[attr-defined]
    monkeypatch.setattr(command, "callback", find_nothing)
    context = typer.Context(command)
    context.params = {str(param.name): None for param in command.params} | {"format_": format_, "dry_run": True}
    assert command.invoke(context) == ExitStatus.DONE
    assert capfd.readouterr().out == "[]\n"


@pytest.mark.parametrize("format_", ["json", "yaml"])
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("topics alter orders --partitions 9 --expect 2", ExitStatus.UNMET),
        ("topics delete orders --expect 2 --yes", ExitStatus.UNMET),
        ("topics delete orders --expect 2 --dry-run", ExitStatus.UNMET),
        ("acls remove --topic orders --yes", ExitStatus.DONE),
        ("acls remove --topic orders --dry-run", ExitStatus.DONE),
    ],
)
@pytest.mark.usefixtures("acls")
def test_document_of_a_change_that_selects_nothing_is_empty(
    kctl: Kctl, cluster: FakeCluster, line: str, status: ExitStatus, format_: str
) -> None:
    cluster.create("orders")
    ran = kctl(f"{line} --format {format_}")
    assert (ran.status, ran.out) == (status, "[]\n")


def test_csv_of_a_change_that_selects_nothing_has_its_header(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    ran = kctl("topics alter orders --partitions 9 --expect 2 --format csv")
    assert ran.out == TOPIC_HEADER + "\r\n"
    assert "selected are 1, and nothing is changed" in ran.err


@pytest.mark.usefixtures("acls")
def test_document_of_acls_that_are_all_there_is_empty(kctl: Kctl, tmp_path: Path) -> None:
    file = tmp_path / "acls.json"
    file.write_text(json.dumps({"version": 1, "acls": []}))
    ran = kctl(f"acls apply {file} --yes --format json")
    assert (ran.status, ran.document) == (ExitStatus.DONE, [])


def test_acls_to_remove_are_listed_on_lines_of_their_own(
    kctl: Kctl, cluster: FakeCluster, acls: list[describe_acls.AclDescription]
) -> None:
    acls += [ACL, describe_acls.AclDescription(principal="User:eve", host="*", operation=4, permission_type=3)]

    def delete(request: Any) -> Any:
        results = [delete_acls.DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=[])]
        return delete_acls.DeleteAclsResponse(filter_results=results * len(request.filters))

    cluster.intercept(delete_acls.DeleteAclsRequest, delete)
    ran = kctl("acls remove --topic orders --yes")
    assert ran.status == ExitStatus.DONE
    first, second = ran.err.splitlines()
    assert "User:bob" in first
    assert "User:eve" in second
