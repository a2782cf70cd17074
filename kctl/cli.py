"""Runs a command line and maps errors to exit statuses; no other module does."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Sequence

from kctl import __version__
from kctl.commands.completion import PROGRAM_WORD
from kctl.commands.frame.exit_status import ExitStatus, Refused, Terminated
from kctl.commands.frame.help.help_pages import page_for
from kctl.errors import (
    ApiError,
    ClusterUnreachable,
    ConfigError,
    ErrorCode,
    GuardRefused,
    KctlError,
    PositionLost,
    UsageError,
)
from kctl.output.console import Console, Format, terminal_width, uses_colors
from kctl.records.compiled import walk_is_compiled
from kctl.system.standard_streams import CannotWrite, ReaderLeft, discard, standard_streams, write_without_waiting


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status; writes errors to stderr and never raises."""
    command_line = list(sys.argv[1:] if arguments is None else arguments)
    Console.default_format = None
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with standard_streams():
            return _status_of(command_line)
    finally:
        signal.signal(signal.SIGTERM, before)


def _status_of(command_line: list[str]) -> int:
    try:
        status = _run(command_line)
        _flush()
    except ReaderLeft:
        # The reader has enough, and the rest of the work was for output only.
        discard(sys.stdout)
        return ExitStatus.DONE
    except BaseException as error:
        return _report(error, command_line)
    return int(status)


def _flush() -> None:
    """Write what is left of the output; its reader may have gone."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)


def exit_status_of(error: BaseException) -> ExitStatus:
    """Map an exception to an exit status."""
    match error:
        case RuntimeError(__cause__=KeyboardInterrupt() as interrupt):
            # Python 3.11 wraps an interrupt that arrives while a class is being created.
            return exit_status_of(interrupt)
        case Terminated():
            return ExitStatus.TERMINATED
        case KeyboardInterrupt():
            return ExitStatus.INTERRUPTED
        case UsageError() | ConfigError():
            return ExitStatus.USAGE
        case Refused() | GuardRefused():
            return ExitStatus.REFUSED
        case ClusterUnreachable() | TimeoutError():
            return ExitStatus.UNREACHABLE
        case PositionLost():
            return ExitStatus.REFUSED
        case ApiError(code=ErrorCode.REQUEST_TIMED_OUT | ErrorCode.NETWORK_EXCEPTION):
            return ExitStatus.UNREACHABLE
        case _:
            return ExitStatus.FAILED


def _run(command_line: list[str]) -> int:
    if command_line in (["--version"], ["version"], ["-V"]):
        sys.stdout.write(f"kctl {__version__}{_build()}\n")
        return ExitStatus.DONE
    if command_line[:1] == [PROGRAM_WORD]:
        from kctl.commands.completion.complete import complete  # noqa: PLC0415 - only shells call this

        sys.stdout.write(complete(command_line[1:]))
        return ExitStatus.DONE
    columns = terminal_width(sys.stdout) if sys.stdout.isatty() else None
    page = page_for(command_line, columns=columns, with_styles=columns is not None and uses_colors())
    if page is not None:
        sys.stdout.write(page)
        return ExitStatus.DONE
    from kctl.commands.frame.root import run  # noqa: PLC0415 - imports typer, which --version does without

    return run(command_line)


def _build() -> str:
    """Return the text about what makes this installation slower than it could be."""
    from kctl.system.operating_system import lacks_profile_guided_optimization  # noqa: PLC0415 - only --version asks

    slower = []
    if not walk_is_compiled():
        slower.append("interpreted record walk: no C compiler was found at installation")
    if lacks_profile_guided_optimization():
        slower.append("Python was built without profile-guided optimization, which costs 10 to 20 % of speed")
    return f" ({'; '.join(slower)})" if slower else ""


def _terminate(_number: int, _frame: object) -> None:
    raise Terminated


def _report(error: BaseException, command_line: Sequence[str]) -> int:
    """Write one line about the error; with --debug also the traceback."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ExitStatus.FAILED
    if "--debug" in command_line:
        import traceback  # noqa: PLC0415 - rarely needed, and --version does without

        Console.standard().complain("".join(traceback.format_exception(error)).rstrip("\n"))
    status = exit_status_of(error)
    if status in {ExitStatus.INTERRUPTED, ExitStatus.TERMINATED}:
        write_without_waiting()
    try:
        _flush()
    except OSError:  # A full disk: what is left of the output would fail again.
        discard(sys.stdout)
    try:
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            code, message, retryable = _describe(error)
            Console.standard(_requested_format(command_line)).fail(code, message, retryable=retryable)
        _flush()
    except OSError:
        discard(sys.stdout)
    return int(status)


def _describe(error: BaseException) -> tuple[str, str, bool]:
    """Return the code, text, and whether a retry may succeed."""
    match error:
        case ApiError():
            from kctl.commands.frame.output.rows import with_remedy  # noqa: PLC0415 - only needed after an error

            return error.code.name, f"{error.code.name}: {with_remedy(error.code, str(error))}", error.code.retriable
        case ClusterUnreachable():
            return "CLUSTER_UNREACHABLE", str(error), True
        case TimeoutError():
            return "TIMED_OUT", str(error) or "timed out", True
        case UsageError():
            return "USAGE", str(error), False
        case ConfigError():
            return "INVALID_CONFIG", str(error), False
        case Refused() | GuardRefused():
            return "REFUSED", str(error), False
        case KctlError():
            return "FAILED", str(error), False
        case CannotWrite(strerror=str() as reason):
            return "OS_ERROR", reason, False
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG, filename=None, strerror=str() as reason):
            return "OS_ERROR", f"cannot write: {reason}", False
        case OSError(strerror=str() as reason):
            return "OS_ERROR", f"{error.filename}: {reason}" if error.filename else reason, False
        case ModuleNotFoundError(name=str() as name) if name.startswith("kctl."):
            return "NOT_BUILT", f"this build of kctl lacks {name}", False
        case _:
            return "INTERNAL_ERROR", f"internal error: {type(error).__name__}: {error} (--debug shows where)", False


def _requested_format(command_line: Sequence[str]) -> str | None:
    """Return the value of --format on a command line that may contain errors."""
    requested = None
    for position, argument in enumerate(command_line):
        if argument == "--format" and position + 1 < len(command_line):
            requested = command_line[position + 1]
        elif argument.startswith("--format="):
            requested = argument.removeprefix("--format=")
    return requested if requested in {known.value for known in Format} else None
