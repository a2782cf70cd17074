"""Runs a command of a tool call in a process of its own, with bounds on its output and its time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from kctl.child_processes import module_command
from kctl.commands.exit_status import MEANINGS, ExitStatus
from kctl.limits import TOOL_MESSAGES_BYTES_MAX, TOOL_OUTPUT_BYTES_MAX, TOOL_TIMEOUT_MS

_CHUNK = 1 << 16


class Outcome(NamedTuple):
    """The result of a command."""

    status: int
    document: object
    """Its JSON output; None if there is none."""
    messages: str
    """Its output on stderr, or the reason why it was ended."""

    @property
    def is_error(self) -> bool:
        """Whether it failed; a condition that does not hold is a result."""
        return self.status not in {ExitStatus.DONE, ExitStatus.UNMET}

    @property
    def meaning(self) -> str:
        """The meaning of the exit status."""
        return MEANINGS.get(self.status, "ended by a signal")


async def run(words: Sequence[str], timeout_ms: int = TOOL_TIMEOUT_MS) -> Outcome:
    """Runs `kctl` with these words and --format json."""
    process = await asyncio.create_subprocess_exec(
        *module_command("kctl"),
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            out, messages = await asyncio.gather(
                _read(process.stdout, TOOL_OUTPUT_BYTES_MAX), _drain(process.stderr, TOOL_MESSAGES_BYTES_MAX)
            )
            status = await process.wait()
    except _TooLong:
        problem = f"the output is longer than {TOOL_OUTPUT_BYTES_MAX:,} bytes; select less"
        return Outcome(ExitStatus.FAILED, None, problem)
    except TimeoutError:
        return Outcome(ExitStatus.UNREACHABLE, None, f"the command took longer than {timeout_ms // 1000} s")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return Outcome(status, _document(out), messages.decode(errors="replace"))


class _TooLong(Exception):
    """The output exceeds its bound."""


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    data = bytearray()
    while chunk := await stream.read(_CHUNK):
        data += chunk
        if len(data) > most:
            raise _TooLong
    return bytes(data)


async def _drain(stream: asyncio.StreamReader, most: int) -> bytes:
    """Reads to the end and returns the first bytes."""
    data = bytearray()
    while chunk := await stream.read(_CHUNK):
        data += chunk[: most - len(data)]
    return bytes(data)


def _document(out: bytes) -> object:
    try:
        return json.loads(out)
    except (ValueError, RecursionError):
        return None
