"""kctl mcp, used by the client of the official package over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from kctl.commands.mcp.server import tools
from tests.integration.cli.conftest import ON_OURS, Kctl
from tests.integration.cli.group_readers import ROOT

Work = Callable[[ClientSession], Awaitable[None]]


def with_server(bootstrap: str, work: Work, *options: str) -> None:
    """Runs `work` with a session of a server for this cluster."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["-m", "kctl", "mcp", "--bootstrap-server", bootstrap, *options]
    server = StdioServerParameters(command=sys.executable, args=words, env=environment, cwd=ROOT)

    async def main() -> None:
        async with (
            asyncio.timeout(240),
            stdio_client(server) as (incoming, outgoing),
            ClientSession(incoming, outgoing) as session,
        ):
            await session.initialize()
            await work(session)

    asyncio.run(main())


async def call(session: ClientSession, name: str, **arguments: object) -> Any:
    """The structured result, which is also the text."""
    result: Any = await session.call_tool(name, arguments)
    assert json.loads(result.content[0].text) == result.structured_content
    assert result.is_error == (result.structured_content.get("status", 1) not in {0, 3})
    return result.structured_content


@ON_OURS
def test_reading_tools_return_the_rows_of_the_commands(bootstrap: str, kctl: Kctl, topic: str) -> None:
    assert kctl(f"produce {topic}", stdin=b"one\ntwo\n").status == 0

    async def work(session: ClientSession) -> None:
        offered = (await session.list_tools()).tools
        assert sorted(tool.name for tool in offered) == sorted(tools(allow_writes=False, has_roots=False))
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in offered)
        found = await call(session, "consume", topics=[topic], where='value == "two"')
        assert [row["value"] for row in found["rows"]] == ["two"]
        found = await call(session, "topics_describe", names=[topic])
        assert found["rows"] == kctl(f"topics describe {topic} --format json").document
        found = await call(session, "topics_describe", names=["--command-config=/etc/passwd"])
        assert found["status"] == 1
        assert "messages" in await call(session, "consume", topics=[topic], bootstrap_server="127.0.0.1:1")
        assert "no such tool" in (await call(session, "topics_delete", names=[topic]))["messages"]
        assert "without --allow-root" in (await call(session, "tables_status", targets=["/etc"]))["messages"]

    with_server(bootstrap, work)


@ON_OURS
def test_exports_are_read_in_the_allowed_folders_only(
    bootstrap: str, kctl: Kctl, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the settings of an object store in the environment, which is not connected to."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert kctl(f"produce {topic}", stdin=b"one\ntwo\n").status == 0
    for name in ("root/inside", "outside"):
        assert kctl(f"export {topic} --to {tmp_path}/{name} --no-progress").status == 0
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    refused = ["outside", "root/../outside", "root/link", "root-2", "root/link/../outside", "root/inside/../../outside"]

    async def work(session: ClientSession) -> None:
        found = await call(session, "tables_status", targets=[f"{tmp_path}/root/inside"])
        assert {row["topic"] for row in found["rows"]} == {topic}
        assert sum(row["exported_offset"] for row in found["rows"]) == 2
        urls = [f"file://{tmp_path}/outside", "s3://lake/shop", "gs://lake/shop", "az://lake/shop", "/", "/etc", "."]
        for target in [*(f"{tmp_path}/{name}" for name in refused), *urls]:
            found = await call(session, "tables_status", targets=[f"{tmp_path}/root/inside", target])
            assert "that this server may read" in found["messages"], target
        assert (
            "has no argument catalog" in (await call(session, "tables_status", targets=["/"], catalog="x"))["messages"]
        )

    with_server(bootstrap, work, "--allow-root", str(tmp_path / "root"))


@ON_OURS
def test_changes_require_the_confirmation_of_their_dry_run(bootstrap: str, kctl: Kctl, topic: str) -> None:
    async def work(session: ClientSession) -> None:
        annotations = {tool.name: tool.annotations for tool in (await session.list_tools()).tools}
        deleting = annotations["topics_delete"]
        assert deleting is not None
        assert (deleting.read_only_hint, deleting.destructive_hint) == (False, True)
        dry = await call(session, "topics_delete", names=[topic])
        assert (dry["status"], dry["dry_run"]) == (0, True)
        assert kctl(f"topics describe {topic}").status == 0
        wrong = await call(session, "topics_delete", names=[topic, "other"], confirmation=dry["confirmation"])
        assert "not that of a dry run with the same arguments" in wrong["messages"]
        done = await call(session, "topics_delete", names=[topic], confirmation=dry["confirmation"])
        assert (done["status"], done["dry_run"]) == (0, False)
        assert kctl(f"topics describe {topic}").status == 1
        failed = await call(session, "topics_delete", names=[topic])
        assert failed["status"] == 1
        assert "confirmation" not in failed

    with_server(bootstrap, work, "--allow-writes")
