"""Tool calls: each runs its command in a process of its own; changes need the confirmation of a dry run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kctl.commands.frame.exit_status import MEANINGS, ExitStatus
from kctl.errors import UsageError
from kctl.limits import Subject, bound
from kctl.system.operating_system import module_command

TOOL_OUTPUT_BYTES_MAX = bound(
    Subject.COMMANDS,
    "output of one tool call of `kctl mcp`",
    1 << 20,
    "bytes",
    on_excess="the command is ended, and the result is an error that suggests to select less",
)
TOOL_MESSAGES_BYTES_MAX = bound(
    Subject.COMMANDS,
    "warnings and errors in the result of one tool call of `kctl mcp`",
    16 << 10,
    "bytes",
    on_excess="the others are dropped",
)
TOOL_TIMEOUT_MS = bound(
    Subject.COMMANDS,
    "time for one tool call of `kctl mcp`",
    120_000,
    "ms",
    on_excess="the command is ended, and the result is an error",
)
LIFETIME_S = 600
PENDING_MAX = 100
_CHUNK = 1 << 16


class Confirmations:
    """The dry runs whose change may still be made: only after a dry run with the same arguments, and once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pending: dict[str, tuple[str, float]] = {}

    def issue(self, tool: str, arguments: Mapping[str, object]) -> str:
        """Return a confirmation for the change of a dry run; if there are too many, the oldest one becomes invalid."""
        while len(self._pending) >= PENDING_MAX:
            del self._pending[next(iter(self._pending))]
        token = secrets.token_urlsafe(16)
        self._pending[token] = (_call(tool, arguments), self._clock() + LIFETIME_S)
        return token

    def redeem(self, token: object, tool: str, arguments: Mapping[str, object]) -> None:
        """Raise UsageError unless the token is that of this call, not used and not too old."""
        call, valid_until_s = self._pending.get(token if isinstance(token, str) else "", ("", 0.0))
        if call != _call(tool, arguments):
            raise UsageError(
                "the confirmation is not that of a dry run with the same arguments, or was used already;"
                " call without it for a dry run"
            )
        del self._pending[str(token)]
        if self._clock() > valid_until_s:
            raise UsageError(f"the confirmation is older than {LIFETIME_S} seconds; call without it for a dry run")


def _call(tool: str, arguments: Mapping[str, object]) -> str:
    return json.dumps([tool, arguments], sort_keys=True)


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
    """Run `kctl` with these words and --format json."""
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
    """Read to the end and return the first bytes."""
    data = bytearray()
    while chunk := await stream.read(_CHUNK):
        data += chunk[: most - len(data)]
    return bytes(data)


def _document(out: bytes) -> object:
    try:
        return json.loads(out)
    except (ValueError, RecursionError):
        return None
