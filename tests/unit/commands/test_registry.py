"""kctl registry, against a registry over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from tests.peers.schema_registry import SchemaRegistry, schema_registry
from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
LONGER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"x","type":"int"}]}'


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SchemaRegistry]:
    """A registry with two subjects, which command lines name by a profile's file; the folder has schemas."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.avsc").write_text(ORDER)
    (tmp_path / "longer.avsc").write_text(LONGER)
    (tmp_path / "binary.avsc").write_bytes(b"\xff")
    (tmp_path / "order.txt").write_text(ORDER)
    with schema_registry() as started:
        started.register("orders-value", ORDER)
        started.register("users-value", 'syntax = "proto3"; message User {}', "PROTOBUF")
        (tmp_path / "client.properties").write_text(f"schema.registry.url={started.url}\n")
        yield started


def on(line: str) -> str:
    return f"registry {line} --command-config client.properties"


@pytest.mark.usefixtures("registry")
def test_subjects_and_versions_are_shown(kctl: Kctl, registry: SchemaRegistry) -> None:
    registry.register("orders-value", LONGER)
    registry.levels["orders-value"] = "FULL"
    rows = kctl(on("list --format json")).document
    assert [tuple(row.values())[:6] for row in rows] == [
        ("orders-value", [1, 2], 3, "AVRO", "FULL", False),
        ("users-value", [1], 2, "PROTOBUF", "BACKWARD", True),
    ]
    assert [row["subject"] for row in kctl(on("list --format json --subject-regex u.*")).document] == ["users-value"]
    described = kctl(on("describe orders-value --format json")).document
    assert [(row["version"], row["id"], row["schema"]) for row in described] == [(1, 1, ORDER), (2, 3, LONGER)]
    for version in ("latest", "2"):
        assert kctl(on(f"describe orders-value --version {version} --format json")).document == described[1:]
    (user,) = kctl(on("describe users-value --format json")).document
    assert (user["type"], user["schema"]) == ("PROTOBUF", 'syntax = "proto3"; message User {}')


def test_levels_are_shown_and_set(kctl: Kctl, registry: SchemaRegistry) -> None:
    for words, expected, kept in (
        ("orders-value", ["orders-value", "BACKWARD", "true", "-"], None),
        ("orders-value --set FULL --dry-run", ["orders-value", "FULL", "false", "would be changed"], None),
        ("orders-value --set FULL", ["orders-value", "FULL", "false", "changed"], "FULL"),
        ("orders-value --set FULL", ["orders-value", "FULL", "false", "unchanged"], "FULL"),
        ("orders-value", ["orders-value", "FULL", "false", "-"], "FULL"),
    ):
        ran = kctl(on(f"compatibility {words}"))
        assert (ran.status, ran.rows, registry.levels.get("orders-value")) == (0, [expected], kept), words
    assert kctl(on("compatibility --set NONE")).rows == [["-", "NONE", "false", "changed"]]
    assert registry.levels[""] == "NONE"


def test_a_schema_is_compared_with_the_versions_that_count(kctl: Kctl, registry: SchemaRegistry) -> None:
    registry.register("orders-value", LONGER)
    ran = kctl(on("check orders-value order.avsc --format json"))
    assert (ran.status, [row["version"] for row in ran.document]) == (ExitStatus.DONE, [2])
    registry.levels["orders-value"] = "FULL_TRANSITIVE"
    registry.incompatible.add("orders-value")
    ran = kctl(on("check orders-value order.avsc --format json"))
    assert (ran.status, [row["version"] for row in ran.document]) == (ExitStatus.UNMET, [1, 2])
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in ran.document[0]["messages"][0]
    ran = kctl(on("check new order.avsc"))
    assert (ran.status, ran.out, ran.err) == (0, "", "new has no versions, so that any schema is accepted\n")


def test_a_schema_is_registered_once(kctl: Kctl, registry: SchemaRegistry) -> None:
    for words, expected in (
        ("longer.avsc --dry-run", ["orders-value", "-", "-", "would be registered"]),
        ("longer.avsc", ["orders-value", "2", "3", "registered"]),
        ("longer.avsc", ["orders-value", "2", "3", "present"]),
        ("order.txt --type avro", ["orders-value", "1", "1", "present"]),
    ):
        assert kctl(on(f"register orders-value {words}")).rows == [expected], words
    registry.incompatible.add("users-value")
    ran = kctl(on("register users-value order.avsc --dry-run"))
    assert (ran.status, ran.out) == (ExitStatus.UNMET, "")
    assert "the schema is not compatible with users-value, version 1" in ran.err
    assert kctl(on("register users-value order.avsc")).status == ExitStatus.FAILED


def test_versions_and_subjects_are_deleted(kctl: Kctl, registry: SchemaRegistry) -> None:
    registry.register("orders-value", LONGER)
    assert kctl(on("delete orders-value")).status == ExitStatus.REFUSED
    assert kctl(on("delete orders-value --dry-run")).rows == [
        ["orders-value", "1", "would be deleted"],
        ["orders-value", "2", "would be deleted"],
    ]
    assert kctl(on("delete orders-value --version 2 --yes")).rows == [["orders-value", "2", "deleted"]]
    assert [row["version"] for row in kctl(on("describe orders-value --format json")).document] == [1]
    ran = kctl(on("delete orders-value --version 7 --yes"))
    assert (ran.status, "has no version 7; it has 1" in ran.err) == (ExitStatus.FAILED, True)
    assert kctl(on("delete orders-value --permanent --dry-run")).rows == [
        ["orders-value", "1", "would be deleted permanently"],
        ["orders-value", "2", "would be deleted permanently"],
    ]
    assert kctl(on("delete orders-value --permanent --yes")).rows == [
        ["orders-value", "1", "deleted permanently"],
        ["orders-value", "2", "deleted permanently"],
    ]
    assert [row["subject"] for row in kctl(on("list --format json")).document] == ["users-value"]


def test_a_read_only_profile_refuses_changes_before_they_are_sent(kctl: Kctl, registry: SchemaRegistry) -> None:
    assert (
        kctl("profile add prod --bootstrap-server 127.0.0.1:1 --command-config client.properties --read-only").status
        == 0
    )
    registry.requests.clear()
    for words in ("register orders-value longer.avsc", "delete orders-value --yes", "compatibility --set NONE"):
        ran = kctl(f"registry {words} --profile prod")
        assert (ran.status, registry.requests) == (ExitStatus.REFUSED, []), ran.err
    assert kctl("registry compatibility --profile prod").status == 0


@pytest.mark.usefixtures("registry")
@for_rows(
    "line, status, message",
    [
        ("describe nope", ExitStatus.FAILED, "has no subject nope"),
        ("describe orders-value --version 9", ExitStatus.FAILED, "has no version 9 of the subject orders-value"),
        ("describe orders-value --version x", ExitStatus.USAGE, "--version"),
        ("delete nope --yes", ExitStatus.FAILED, "has no subject nope"),
        ("check orders-value order.txt", ExitStatus.USAGE, "the type of the schema does not follow from the name"),
        ("check orders-value nope.avsc", ExitStatus.USAGE, "cannot read nope.avsc"),
        ("check orders-value binary.avsc", ExitStatus.USAGE, "binary.avsc is not UTF-8"),
        ("check orders-value order.avsc --reference x", ExitStatus.USAGE, "--reference takes NAME=SUBJECT:VERSION"),
        ("compatibility orders-value --set SOME", ExitStatus.USAGE, "SOME"),
        ("list --subject-regex (", ExitStatus.USAGE, "not a valid regular expression"),
    ],
)
def test_what_cannot_be_done_is_named(kctl: Kctl, line: str, status: ExitStatus, message: str) -> None:
    ran = kctl(on(line))
    assert (ran.status, message in ran.err) == (status, True), ran.err


def test_responses_that_make_no_sense_are_errors(kctl: Kctl, registry: SchemaRegistry) -> None:
    for path, line, message in (
        ("/subjects", "list", "returned no list of subjects"),
        ("/config", "compatibility", "returned no compatibility level"),
        ("/subjects/orders-value/versions", "describe orders-value", "returned no versions"),
        ("/subjects/orders-value/versions/1", "describe orders-value", "returned no version"),
        ("/compatibility/subjects/orders-value/versions/1", "check orders-value order.avsc", "did not return whether"),
    ):
        for body in (b"[{}]", b"5", b'{"version":"x"}'):
            registry.bodies = {path: body}
            ran = kctl(on(line))
            assert (ran.status, message in ran.err) == (ExitStatus.FAILED, True), (path, body, ran.err)
    registry.bodies = {"/subjects/orders-value/versions": json.dumps([*range(1, 600)]).encode()}
    assert "has more than 500 versions" in kctl(on("describe orders-value")).err
