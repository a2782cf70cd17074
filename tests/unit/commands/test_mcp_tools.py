"""The tools of kctl mcp: every command is classified, and a call can only become the command line that it describes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kctl.commands.frame.options.parameters import metavar_of
from kctl.commands.frame.root import all_commands
from kctl.commands.mcp import calls
from kctl.commands.mcp.calls import (
    LIFETIME_S,
    PENDING_MAX,
    TOOL_MESSAGES_BYTES_MAX,
    TOOL_OUTPUT_BYTES_MAX,
    Confirmations,
)
from kctl.commands.mcp.roots import Roots
from kctl.commands.mcp.server import ADDING, CONFIRMATION, DELETING, NOT_OFFERED, READING, tools
from kctl.errors import UsageError
from tests.rows import for_rows

TOOLS = tools(allow_writes=True)


def test_every_command_is_a_tool_or_has_a_reason_why_not() -> None:
    classified = [*READING, *ADDING, *DELETING, *(name for names in NOT_OFFERED.values() for name in names)]
    commands = {noun if noun == verb else f"{noun} {verb}" for noun, verbs in all_commands().items() for verb in verbs}
    assert sorted(classified) == sorted(commands)


def test_reading_tools_have_no_option_that_changes_anything() -> None:
    reading = tools(allow_writes=False)
    assert [tool.name for tool in reading.values() if tool.changes] == []
    assert sorted(reading) == sorted(name.replace(" ", "_").replace("-", "_") for name in READING)
    for tool in reading.values():
        assert not {"dry_run", "yes", "execute", "group", CONFIRMATION} & set(tool.parameters) - (
            {"group"} if tool.name.startswith(("groups", "acls")) else set()
        )


def test_no_tool_has_an_argument_with_an_address_or_a_file() -> None:
    names = {name for tool in TOOLS.values() for name in tool.schema["properties"]}
    assert not {name for name in names if "file" in name or "dir" in name or "server" in name or "registry" in name}
    assert not names & {"command_config", "endpoint", "zookeeper", "from_cluster", "backup", "format"}


def test_every_argument_that_may_be_a_path_or_an_address_is_checked_or_is_neither() -> None:
    words = ("FILE", "DIR", "URL", "TARGET", "PATH", "HOST", "ADDRESS", "CONFIG", "CATALOG", "ENDPOINT")
    found = {
        (tool.name, name)
        for tool in TOOLS.values()
        for name, param in tool.parameters.items()
        if any(word in f"{metavar_of(param)} {name}".upper() for word in words) and not tool.needs_root
    }
    values_for_brokers = {"ip", "host", "config", "delete_config", "drain"}
    paths_in_json = {("consume", "mask")}
    assert {pair for pair in found if pair[1] not in values_for_brokers} == paths_in_json
    assert [tool.name for tool in TOOLS.values() if tool.needs_root] == ["tables_status"]


def test_targets_are_those_below_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "root-2").mkdir()
    (tmp_path / "root" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "root" / "in").symlink_to(tmp_path / "root" / "a")
    (tmp_path / "link-to-root").symlink_to(tmp_path / "root")
    roots = Roots(["link-to-root", "s3://lake/shop/"])
    real = os.path.realpath(tmp_path)
    for text, path in (
        ("root", "root"),
        ("root/a", "root/a"),
        ("link-to-root/a", "root/a"),
        (f"file://{tmp_path}/root/a", "root/a"),
        ("root/in", "root/a"),
        ("root/missing", "root/missing"),
        ("root/a/../a", "root/a"),
    ):
        assert roots.checked(text) == f"{real}/{path}", text
    for url in ("s3://lake/shop", "s3://lake/shop/a"):
        assert roots.checked(url) == url
    for text in (
        *("other", "root/..", "root/../other", "root/out", "root/out/x", "root-2", "/", "/etc/passwd", ".", ""),
        *(f"file://{tmp_path}/other", "file:///etc", "file://localhost/etc", "FILE:///etc", "http://127.0.0.1/", "a\0"),
        *("s3://lake", "s3://lake/shop-2", "s3://lake/shop/../x", "s3://lake/shop/%2e%2e/x", "s3://lake/shop/%2E./x"),
        *("s3://lake/shop%2f..%2fx", "s3://lake/shop/..\\x", "s3://other/shop", "gs://lake/shop", "s3://a@lake/shop"),
        *("s3://lake/shop?x", "s3://lake/shop#x", "s3://lake:80/shop", "S3a://lake/shop", "-", "@/etc/passwd"),
    ):
        with pytest.raises(UsageError):
            roots.checked(text)
        with pytest.raises(UsageError):
            TOOLS["tables_status"].command_line({"targets": ["root", text]}, roots)
    with pytest.raises(UsageError, match="no --allow-root"):
        TOOLS["tables_status"].command_line({"targets": ["root"]})
    with pytest.raises(UsageError, match="is not a folder"):
        Roots(["missing"])
    words = TOOLS["tables_status"].command_line({"targets": ["link-to-root/a"]}, roots)
    assert words == ["tables", "status", "--", f"{real}/root/a"]


@for_rows("tool", TOOLS.values())
def test_schemas_are_valid(tool: Any) -> None:
    Draft202012Validator.check_schema(tool.schema)
    assert tool.schema["additionalProperties"] is False
    assert (CONFIRMATION in tool.schema["properties"]) == tool.changes


def test_arguments_become_one_command_line() -> None:
    line = TOOLS["topics_create"].command_line({"names": ["--yes"], "partitions": 3, "config": ["a=b", "--c=d"]})
    assert line == ["topics", "create", "--partitions=3", "--set=a=b", "--set=--c=d", "--", "--yes"]
    assert TOOLS["consume"].command_line({"topics": ["orders"]}) == ["consume", "--max-messages=100", "--", "orders"]
    assert TOOLS["topics_describe"].command_line({"names": ["a", "b"], "under_replicated": True}) == [
        *("topics", "describe", "--under-replicated-partitions", "--", "a", "b"),
    ]


@for_rows(
    "tool, arguments, error",
    [
        ("topics_create", {}, "requires the argument names"),
        ("topics_create", {"names": [7]}, "the argument names is a string"),
        ("topics_create", {"names": ["a\0b"]}, "the argument names is a string"),
        ("topics_create", {"names": ["x" * 10_001]}, "at most 10,000 characters"),
        ("topics_create", {"names": ["a"], "partitions": "3"}, "the argument partitions is a whole number"),
        ("topics_create", {"names": ["a"], "if_not_exists": "yes"}, "the argument if_not_exists is true or false"),
        ("topics_create", {"names": ["a"], "bootstrap_server": "evil:9092"}, "has no argument bootstrap_server"),
        ("topics_create", {"names": ["a"], "yes": True}, "has no argument yes"),
        ("topics_describe", {"names": "a"}, "the argument names is a list"),
        ("consume", {"topics": ["a"], "max_records": 1_001}, "from 0 to 1,000"),
        ("consume", {"topics": ["a"], "group": "g"}, "has no argument group"),
    ],
)
def test_other_arguments_are_refused(tool: str, arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError) as raised:
        TOOLS[tool].command_line(arguments)
    assert error in str(raised.value)


@given(
    st.sampled_from(sorted(TOOLS)),
    st.dictionaries(
        st.sampled_from(["names", "name", "topic", "partition", "config"]),
        st.text(max_size=8) | st.lists(st.text(max_size=8), max_size=2) | st.integers() | st.booleans(),
    ),
)
def test_no_argument_becomes_another_option(name: str, arguments: dict[str, Any]) -> None:
    tool = TOOLS[name]
    try:
        line = tool.command_line(arguments)
    except UsageError:
        return
    options = line[len(tool.words) : line.index("--") if "--" in line else None]
    allowed = {opt for param in tool.parameters.values() for opt in param.opts}
    assert all(option.partition("=")[0] in allowed for option in options)


def test_a_confirmation_is_valid_once_for_the_same_call() -> None:
    now_s = [0.0]
    confirmations = Confirmations(lambda: now_s[0])
    token = confirmations.issue("topics_delete", {"names": ["a"]})
    for wrong in ((token, "topics_delete", {"names": ["b"]}), (token, "records_delete", {"names": ["a"]})):
        with pytest.raises(UsageError, match="not that of a dry run with the same arguments"):
            confirmations.redeem(*wrong)
    for value in ("", "x", None, 7, ["x"]):
        with pytest.raises(UsageError):
            confirmations.redeem(value, "topics_delete", {"names": ["a"]})
    confirmations.redeem(token, "topics_delete", {"names": ["a"]})
    with pytest.raises(UsageError):
        confirmations.redeem(token, "topics_delete", {"names": ["a"]})
    old = confirmations.issue("topics_delete", {})
    now_s[0] = LIFETIME_S + 1
    with pytest.raises(UsageError, match="older than"):
        confirmations.redeem(old, "topics_delete", {})


def test_pending_confirmations_are_bounded() -> None:
    confirmations = Confirmations(lambda: 0.0)
    first, *_ = [confirmations.issue("t", {"n": number}) for number in range(PENDING_MAX + 1)]
    with pytest.raises(UsageError):
        confirmations.redeem(first, "t", {"n": 0})


def run_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, program: str, timeout_ms: int = 60_000) -> Any:
    """The outcome of a Python program in place of kctl."""
    script = tmp_path / "program"
    script.write_text(f"#!{sys.executable}\n{program}")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    return asyncio.run(calls.run(["topics", "list"], timeout_ms))


def test_output_messages_and_time_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    outcome = run_program(monkeypatch, tmp_path, f"print('[' + ' ' * {TOOL_OUTPUT_BYTES_MAX} + ']')")
    assert (outcome.is_error, outcome.document) == (True, None)
    assert "the output is longer than" in outcome.messages
    monkeypatch.undo()
    outcome = run_program(monkeypatch, tmp_path, "import sys; sys.stderr.write('x' * 1_000_000); print('[]')")
    assert (outcome.status, outcome.document, len(outcome.messages)) == (0, [], TOOL_MESSAGES_BYTES_MAX)
    monkeypatch.undo()
    outcome = run_program(monkeypatch, tmp_path, "import time; time.sleep(600)", timeout_ms=100)
    assert (outcome.is_error, outcome.document) == (True, None)
    assert "took longer than" in outcome.messages
