"""The command line: finds the command, runs it, and is the one place where errors become exit statuses.

A command line costs only what it uses.  The nouns stand in a table of names, so one module is imported per run;
well-formed lines are read by `kctl.commands.parsing`, and only the others, which are mostly mistakes, pay for importing
typer.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kctl.commands.catalog import NOUNS, load
from kctl.commands.exit_status import ExitStatus, Refused, Terminated
from kctl.errors import ApiError, ClusterUnreachable, ConfigError, ErrorCode, KctlError, UsageError

if TYPE_CHECKING:
    from kctl.commands.declaration import Command, Group


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status; prints whatever there is to say and never raises."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _replace_closed_streams()
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        status = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough.  The interpreter's own flush at exit must not stumble over the same pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.DONE
    except BaseException as error:
        return _report(error, words)
    finally:
        signal.signal(signal.SIGTERM, before)
    return int(status)


def _replace_closed_streams() -> None:
    """A process may be started with standard streams closed; then there is nothing to read and nobody to write to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - lives as long as the process


def exit_status_of(error: BaseException) -> ExitStatus:
    """The one mapping from exceptions to exit statuses."""
    match error:
        case RuntimeError(__cause__=KeyboardInterrupt() as interrupt):
            # Python 3.11 wraps what comes while a class is being made.
            return exit_status_of(interrupt)
        case Terminated():
            return ExitStatus.TERMINATED
        case KeyboardInterrupt():
            return ExitStatus.INTERRUPTED
        case UsageError() | ConfigError():
            return ExitStatus.USAGE
        case Refused():
            return ExitStatus.REFUSED
        case ClusterUnreachable() | TimeoutError() | ApiError(code=ErrorCode.REQUEST_TIMED_OUT):
            return ExitStatus.UNREACHABLE
        case _:
            return ExitStatus.FAILED


def _run(words: list[str]) -> int:
    if words == ["--version"]:
        return _version()
    leading, noun, rest = _split_noun(words)
    if noun is None:
        return _without_noun(words)
    return _run_group(load(noun), leading, rest)


def _run_group(group: Group, leading: list[str], rest: list[str]) -> int:
    """Find the verb; global options in front of it count as if they stood behind it."""
    if group.is_verb:
        command, words = group.commands[group.name], leading + rest
    else:
        between, verb, tail = _split_leading(rest)
        found = group.commands.get(verb or "")
        if found is None:
            return _without_verb(group, verb, rest)
        command, words = found, leading + between + tail
    if _asks_for_help(words):
        from kctl.commands.help import command_help  # noqa: PLC0415

        return _print(command_help(group, command))
    from kctl.commands.parsing import parse  # noqa: PLC0415

    values = parse(command, words)
    if values is not None:
        return _call(command, values)
    from kctl.commands.typer_app import build, invoke  # noqa: PLC0415

    line = words if group.is_verb else [command.name, *words]
    return invoke(build(group, _call), line, program=f"kctl {group.name}")


def _call(command: Command, values: dict[str, Any]) -> int:
    from kctl.commands.invocation import Invocation, split_given  # noqa: PLC0415
    from kctl.console import Console  # noqa: PLC0415

    common, own = split_given(values)
    console = Console.standard(
        common["format"], header=bool(common.get("header")), no_color=common["no_color"], quiet=common["quiet"]
    )
    return int(command.function(Invocation(console, common), **own))


def _split_noun(words: list[str]) -> tuple[list[str], str | None, list[str]]:
    leading, noun, rest = _split_leading(words)
    return (leading, noun, rest) if noun in NOUNS else ([], None, words)


def _split_leading(words: list[str]) -> tuple[list[str], str | None, list[str]]:
    """The global options in front of the first word that is none, that word, and the rest."""
    from kctl.commands.options import global_flag_takes_value  # noqa: PLC0415

    position = 0
    while position < len(words):
        flag, equals, _ = words[position].partition("=")
        takes_value = global_flag_takes_value(flag)
        if takes_value is None:
            return words[:position], words[position], words[position + 1 :]
        position += 2 if takes_value and not equals else 1
    return words, None, []


def _without_noun(words: list[str]) -> int:
    from kctl.commands.help import program_help  # noqa: PLC0415
    from kctl.commands.options import global_flag_takes_value  # noqa: PLC0415

    _, word, _ = _split_leading(words)
    if word == "help":
        return _help_for(words)
    if word is not None and word not in {"--help", "-h"}:
        what = "option" if word.startswith("-") else "command"
        raise UsageError(f"no such {what}: {word}{_meant(word, NOUNS)}  Try 'kctl --help'.")
    text = program_help({noun: summary for noun, (_, summary) in NOUNS.items()})
    if word is not None:
        return _print(text)
    if words and global_flag_takes_value(words[-1]):
        raise UsageError(f"option {words[-1]} needs a value.  Try 'kctl --help'.")
    sys.stderr.write(text + "\n")
    return ExitStatus.USAGE


def _help_for(words: list[str]) -> int:
    """`kctl help topics create` is `kctl topics create --help`."""
    wanted = list(words)
    wanted.remove("help")
    return _run([*wanted, "--help"])


def _without_verb(group: Group, verb: str | None, rest: list[str]) -> int:
    from kctl.commands.help import group_help  # noqa: PLC0415

    if verb in {None, "--help", "-h"} and _asks_for_help(rest):
        return _print(group_help(group))
    if verb is None:
        sys.stderr.write(group_help(group) + "\n")
        return ExitStatus.USAGE
    what = f"no such {'option' if verb.startswith('-') else 'verb'} of kctl {group.name}: {verb}"
    raise UsageError(f"{what}{_meant(verb, group.commands)}  Try 'kctl {group.name} --help'.")


def _meant(word: str, known: Any) -> str:
    import difflib  # noqa: PLC0415 - only mistakes need it

    close = difflib.get_close_matches(word, list(known), n=1)
    return f".  Did you mean {close[0]}?" if close else "."


def _asks_for_help(words: Sequence[str]) -> bool:
    before = words[: words.index("--")] if "--" in words else words
    return "--help" in before or "-h" in before


def _version() -> int:
    from kctl import __version__  # noqa: PLC0415

    return _print(f"kctl {__version__}")


def _print(text: str) -> int:
    sys.stdout.write(text + "\n")
    return ExitStatus.DONE


def _terminate(_number: int, _frame: object) -> None:
    raise Terminated


def _report(error: BaseException, words: Sequence[str]) -> int:
    """One line about what went wrong; --debug adds the traceback."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ExitStatus.FAILED
    if "--debug" in words:
        import traceback  # noqa: PLC0415

        from kctl.terminal_text import escape_lines  # noqa: PLC0415

        sys.stderr.write(escape_lines("".join(traceback.format_exception(error))))
    status = exit_status_of(error)
    try:
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            from kctl.console import Console  # noqa: PLC0415

            code, message, retryable = _describe(error)
            Console.standard(_wanted_format(words)).fail(code, message, retryable=retryable)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(status)


def _describe(error: BaseException) -> tuple[str, str, bool]:
    """Code, text and whether trying again may help."""
    match error:
        case ApiError():
            return error.code.name, f"{error.code.name}: {error}", error.code.retriable
        case ClusterUnreachable():
            return "CLUSTER_UNREACHABLE", str(error), True
        case TimeoutError():
            return "TIMED_OUT", str(error) or "timed out", True
        case UsageError():
            return "USAGE", str(error), False
        case ConfigError():
            return "INVALID_CONFIG", str(error), False
        case Refused():
            return "REFUSED", str(error), False
        case KctlError():
            return "FAILED", str(error), False
        case OSError(strerror=str() as reason):
            return "OS_ERROR", f"{error.filename}: {reason}" if error.filename else reason, False
        case ModuleNotFoundError(name=str() as name) if name.startswith("kctl."):
            return "NOT_BUILT", f"this build of kctl lacks {name}", False
        case _:
            return "INTERNAL_ERROR", f"internal error: {type(error).__name__}: {error} (--debug shows where)", False


def _wanted_format(words: Sequence[str]) -> str | None:
    """The value of --format in a line that may be wrong elsewhere."""
    from kctl.commands.options import FORMATS  # noqa: PLC0415

    wanted = None
    for position, word in enumerate(words):
        if word == "--format" and position + 1 < len(words):
            wanted = words[position + 1]
        elif word.startswith("--format="):
            wanted = word.removeprefix("--format=")
    return wanted if wanted in FORMATS else None
