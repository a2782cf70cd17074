"""Commands that list something and change nothing: they add --expect and --watch.

@app.command("list", cls=QueryCommand, epilog=examples("kctl topics list"))
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any, TextIO

from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import INTERVAL_DEFAULT, Parameter, flags_of, query_options
from kctl.commands.frame.options.values import Expectation, format_time
from kctl.errors import ClusterUnreachable, KctlError, UsageError
from kctl.output.console import Format, terminal_height
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from kctl.output.console import Console


_DURATION = re.compile(r"[0-9].*|P.*")
_CLEAR = "\x1b[H\x1b[2J"


class QueryCommand(ClusterCommand):
    """A command that connects to a cluster and lists something."""

    only_shows = True

    def common_options(self) -> list[Parameter]:
        """Return the options of every command, and those of lists."""
        return [*super().common_options(), *query_options()]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the interval to `--watch` without one.  Raises UsageError."""
        if any("--watch" in flags_of(param) for param in self.common_params):
            args = _with_interval(args)
        return super().parse_args(ctx, args)

    def run(self, ctx: Any, common: dict[str, Any]) -> Any:
        """Call the function once, or repeatedly with --watch."""
        expected, rounds, interval_ms = common.get("expect"), common.get("rounds"), common.get("watch")
        if interval_ms is None:
            if rounds is not None:
                raise UsageError("--rounds requires --watch")
            return _checked(super().run(ctx, common), ctx.obj.console, expected)
        return _watch(lambda: ctx.obj.console, lambda: self._round(ctx, common), interval_ms, rounds, expected)

    def _round(self, ctx: Any, common: dict[str, Any]) -> Any:
        ctx.obj = ctx.obj.again()
        return super().run(ctx, common)


def _with_interval(arguments: list[str]) -> list[str]:
    """Return the arguments with the default interval behind each `--watch` without one."""
    given = list(arguments)
    for position, word in enumerate(arguments):
        if word == "--":
            break
        following = arguments[position + 1] if position + 1 < len(arguments) else ""
        if word == "--watch" and not _DURATION.fullmatch(following):
            given[position] = f"--watch={INTERVAL_DEFAULT}"
    return given


def _checked(status: Any, console: Console, expected: Expectation | None) -> Any:
    """Return the status, or UNMET if the command succeeded with another number of rows than expected."""
    if expected is None or status not in {None, ExitStatus.DONE}:
        return status
    if console.listed is None:
        raise UsageError("--expect needs rows, and with these options there are none")
    if expected.holds(console.listed):
        return status
    console.warn(f"--expect {expected.text}: there {'is' if console.listed == 1 else 'are'} {console.listed}")
    return ExitStatus.UNMET


def _watch(
    console_of: Callable[[], Console],
    show: Callable[[], Any],
    interval_ms: float,
    rounds: int | None,
    expected: Expectation | None,
) -> Any:
    """Show the list again after each interval; the status is that of the last round."""
    console = console_of()
    if console.format.is_document:
        raise UsageError(
            f"--format {console.format.value} is one document, which --watch never ends; use --format jsonl"
        )
    done = 0
    while True:
        if done:
            time.sleep(interval_ms / 1000)
        status: Any
        try:
            status = _screenful(console, show)
        except ClusterUnreachable as error:
            if not done:
                raise
            console.warn(str(error))
            status = ExitStatus.UNREACHABLE
        else:
            if expected is not None and console.listed is not None and expected.holds(console.listed):
                return status
        done += 1
        if done == rounds:
            return status if status is ExitStatus.UNREACHABLE else _checked(status, console, expected)


def _screenful(console: Console, show: Callable[[], Any]) -> Any:
    """Return one round.  A terminal is cleared when the result is known, and shows as many lines as it has."""
    console.stamp = format_time(round(time.time() * 1000))
    stdout = console.stdout
    clears = console.format is Format.TABLE and stdout.isatty()
    held = _Held(stdout)
    console.stdout = held
    try:
        status = show()
    finally:
        console.stdout = stdout
    text = held.getvalue()
    stdout.write(_CLEAR + _first_lines(text, terminal_height(stdout) - 1) if clears else text)
    console.header = None if console.header else console.header
    console.flush()
    return status


def _first_lines(text: str, count: int) -> str:
    lines = text.splitlines(keepends=True)
    if len(lines) <= count:
        return text
    return "".join(lines[: count - 1]) + f"... {counted(len(lines) - count + 1, 'more line')}\n"


class _Held(io.StringIO):
    """Output that is collected and written later, with the layout for its terminal."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream, whose width is that of the table."""
        return self._stream.fileno()


# Says why a list is empty: brokers omit what the user may not describe, without an error.


def note_omissions(run: Invocation, found: Sized, what: str) -> None:
    """Write a note if nothing was found and the user may not describe the cluster; `what` is a plural."""
    if found or run.console.quiet:
        return
    from kctl.admin.cluster.opening import may_describe_cluster  # noqa: PLC0415 - only for an empty list

    try:
        is_permitted = run.on_cluster(may_describe_cluster)
    except KctlError:
        return  # The list is complete without the note.
    if is_permitted is False:
        run.console.note(
            f"no {what} are listed: the user may not describe the cluster, and a broker omits {what} that the user "
            "may not describe"
        )
