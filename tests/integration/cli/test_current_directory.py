"""Files in the current directory are not executed, whatever their names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.peers import probe

KCTL = Path(sys.executable).with_name("kctl")
MODULES = ("asyncio", "dataclasses", "json", "logging", "secrets", "ssl", "typing", "kctl")
"""Modules that every command imports."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A current directory with files that are named like modules and write a file when they are executed."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n")
    return tmp_path


def run(directory: Path, *words: str) -> None:
    done = subprocess.run([KCTL, *words], cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def executed(directory: Path) -> str:
    """The names of the modules that were executed."""
    file = directory / "executed"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("options", [[], ["--processes", "2"]], ids=["one process", "two processes"])
def test_a_broker_in_the_background(directory: Path, options: list[str]) -> None:
    at = ("--data-dir", str(directory / "data"))
    run(directory, "broker", "start", "--detach", "--port", str(probe.free_port()), *at, *options)
    run(directory, "broker", "stop", *at)
    assert executed(directory) == ""


def test_tools_of_mcp(directory: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "cluster_describe", "arguments": {}}},
    ]
    nobody = f"127.0.0.1:{probe.free_port()}"
    with subprocess.Popen(
        [KCTL, "mcp", "--bootstrap-server", nobody],
        cwd=directory,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
        server.stdin.flush()
        # Standard input stays open until the tool has been called.
        response = next(message for message in map(json.loads, server.stdout) if message.get("id") == 2)
        server.stdin.close()
    assert executed(directory) == ""
    assert nobody in json.dumps(response)
