"""The typer command classes of kctl: common options, checked values, and help with examples and exit statuses.

A verb is declared as in any typer application and names one of these classes:

    app = typer.Typer(add_completion=False)

    @app.command("create", cls=ClusterCommand, epilog=examples("kctl topics create orders --partitions 6"))
    def create(ctx: typer.Context, name: Annotated[str, typer.Argument(help="Name of the topic.")]) -> ExitStatus:
        run: Invocation = ctx.obj

`LocalCommand` adds the output options, `ClusterCommand` also those that select the cluster, and `ChangingCommand` also
those that confirm a change.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import typer
import typer.core

from kctl.client.connections.guard import SentChanges
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import summary_of, write_command_help
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import any_text, set_moment
from kctl.commands.frame.options.parameters import (
    Parameter,
    change_options,
    choices_of,
    cluster_options,
    completes,
    consent_options,
    flags_of,
    is_argument,
    metavar_of,
    name_of,
    number_range,
    output_options,
    parser_of,
    repeats,
)
from kctl.commands.frame.output.shown import shown_by
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.limits import Subject, bound
from kctl.output.console import Console, Format
from kctl.output.quantities import parse_integer
from kctl.system.user_files import STANDARD_INPUT, read_input

NAMES_FROM_INPUT_MAX = bound(
    Subject.NAMED_FILES,
    "names that `-` reads from standard input",
    100_000,
    "names",
    on_excess="the command fails before it does anything",
)


# `-` in a list of names: the names are read from standard input, one per line.
#
# A topic or group can have the name `-`: it is written `+-`, and further `+` before it are part of the name.


def takes_names(param: Parameter) -> bool:
    """Return whether an argument takes any number of names, which are not those of files."""
    return is_argument(param) and repeats(param) and not completes(param) and not metavar_of(param).startswith("T:P")


def with_names_from_input(names: list[str] | None) -> list[str] | None:
    """Return the names, with those of standard input in place of `-`.  Raises UsageError and OSError."""
    if not names or STANDARD_INPUT not in names:
        return names if names is None else [_literal(name) for name in names]
    if names.count(STANDARD_INPUT) > 1:
        raise UsageError("- is given twice; standard input can be read once")
    position = names.index(STANDARD_INPUT)
    before, after = names[:position], names[position + 1 :]
    return [*map(_literal, before), *_names_from_input(), *map(_literal, after)]


def _literal(name: str) -> str:
    """Return the name that an argument other than `-` gives."""
    return name[1:] if name.startswith("+") and name.lstrip("+") == STANDARD_INPUT else name


def _names_from_input() -> list[str]:
    """Return the lines without surrounding spaces, except empty ones.  Raises UsageError if there are none."""
    try:
        lines = read_input(STANDARD_INPUT).decode().splitlines()
    except UnicodeDecodeError:
        raise UsageError("- reads names from standard input, which is not UTF-8") from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise UsageError("- reads names from standard input, which has none")
    if len(names) > NAMES_FROM_INPUT_MAX:
        raise UsageError(f"- reads names from standard input, which has more than {NAMES_FROM_INPUT_MAX:,}")
    return names


# Checks the values of options and arguments before typer converts them, with kctl's error texts.
#
# Every command line is checked, so that no command has to check an option for emptiness, for UTF-8 or for the range
# of its number.


def check(param: Parameter, given: object) -> None:
    """Check the values of a parameter.  Raises UsageError."""
    for text in given if isinstance(given, (list, tuple)) else [given]:
        if isinstance(text, str):
            _check_text(param, text)


def _check_text(param: Parameter, text: str) -> None:
    name = name_of(param)
    choices = choices_of(param)
    if choices and text not in choices:
        raise UsageError(f"invalid value for {name}: '{text}' is not one of {', '.join(choices)}.")
    if not text and parser_of(param) is not any_text:
        raise UsageError(f"{name} is empty; is a shell variable not set?")
    bounds = number_range(param)
    if bounds:
        parse_integer(text, name, low=bounds[0], high=bounds[1])
    if not completes(param):
        _check_unicode(text, name)


def _check_unicode(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} is not valid UTF-8: {text!a}") from None


def _name_in_errors(param: Parameter) -> None:
    """Make an error in the value of a parameter name the parameter."""
    read, name = parser_of(param), name_of(param)
    if read is None or param.type.func is not read:
        return  # It has none, or names the parameter since another command was built.

    @functools.wraps(read, updated=())
    def parse(value: Any) -> Any:
        try:
            return read(value)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None

    param.type.func = parse


class LocalCommand(typer.core.TyperCommand):
    """A command with the output options; its function gets an `Invocation` as `ctx.obj`."""

    takes_cluster_options = False
    takes_change_options = False
    takes_consent = False
    only_shows = False
    """Whether it changes, starts and writes nothing, so that a beginning of its name is enough to run it."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        declared: list[Parameter] = list(self.params)
        own_flags = {flag for param in declared for flag in flags_of(param)}
        # A command's own option replaces the common one of the same name.
        self.common_params = [param for param in self.common_options() if not own_flags.intersection(flags_of(param))]
        self.params = [*declared, *self.common_params]
        for param in self.params:
            _name_in_errors(param)
        self.own_params = declared + [param for param in self.common_params if param in consent_options()]
        """Those that the documentation describes for each command, not once for all."""

    def common_options(self) -> list[Parameter]:
        """Return the options that commands of this class have in common."""
        return [
            *(consent_options() if self.takes_consent else []),
            *(cluster_options() if self.takes_cluster_options else []),
            *(change_options() if self.takes_change_options else []),
            *output_options(),
        ]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Check the texts of all values before typer converts them.  Raises UsageError."""
        if has_help_option(args):
            return super().parse_args(ctx, [ctx.help_option_names[0]])
        set_moment(round(time.time() * 1000))
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        if given.get("schema"):
            self._print_schema(ctx, is_line=given.get("format_") == "jsonl")
        for param in self.params:
            check(param, given.get(str(param.name)))
        rest = super().parse_args(ctx, args)
        for param in self.own_params:
            if takes_names(param):
                ctx.params[str(param.name)] = with_names_from_input(ctx.params.get(str(param.name)))
        return rest

    def _print_schema(self, ctx: Any, *, is_line: bool) -> NoReturn:
        """Print the schema of the output and end the command.  Raises UsageError if it shows no rows."""
        from kctl.commands.frame.output.json_schema import schema_text  # noqa: PLC0415 - rarely used

        shown = shown_by(self.callback)
        if shown is None:
            raise UsageError(f"{ctx.command_path} shows no rows, so that there is no schema")
        Console.standard().text(schema_text(ctx.command_path, summary_of(self), shown, is_line=is_line))
        raise typer.Exit(ExitStatus.DONE)

    def invoke(self, ctx: Any) -> Any:
        """Call the function of the command, with an `Invocation` of the common options as `ctx.obj`."""
        common = {str(param.name): ctx.params.pop(str(param.name)) for param in self.common_params}
        ctx.obj = self.invocation(common, ctx)
        status = self.run(ctx, common)
        self._complete_document(ctx)
        return status

    def _complete_document(self, ctx: Any) -> None:
        """Write the empty list of json and yaml if the command has found nothing to show."""
        shown, console = shown_by(self.callback), ctx.obj.console
        if shown and shown.is_list and console.format.is_document and not console.has_output:
            console.show([], [])

    def run(self, ctx: Any, common: dict[str, Any]) -> Any:
        """Call the function of the command and return its status."""
        return super().invoke(ctx)

    def invocation(self, common: dict[str, Any], ctx: Any) -> Invocation:
        """Return the invocation with these values of the common options."""
        console = Console.standard(
            common["format_"],
            header=False if common["no_header"] else True if common.get("header") else None,
            no_color=common["no_color"],
            quiet=common["quiet"],
            human=bool(common.get("human")),
        )
        return Invocation(console, common)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write help as plain text."""
        write_command_help(self, ctx, formatter)


class LocalChange(LocalCommand):
    """A command that changes files."""

    takes_consent = True

    def invocation(self, common: dict[str, Any], ctx: Any) -> Invocation:
        """Return the invocation, whose change is completed although the reader of its output leaves."""
        run = super().invocation(common, ctx)
        run.console.outlive_reader()
        return run


class ClusterCommand(LocalCommand):
    """A command that connects to a cluster."""

    takes_cluster_options = True

    def invocation(self, common: dict[str, Any], ctx: Any) -> Invocation:
        """Return the invocation with the output format of the profile in use."""
        run = super().invocation(common, ctx)
        if common["format_"] is None and run.profile is not None and run.profile.format:
            Console.default_format = run.console.format = Format(run.profile.format)
        return run

    def run(self, ctx: Any, common: dict[str, Any]) -> Any:
        """Call the function of the command; afterwards show how to grant what was denied."""
        try:
            return super().run(ctx, common)
        except ApiError as error:
            if error.code.name.endswith("_AUTHORIZATION_FAILED"):
                _note_grants(ctx, {error.code: [ctx.params]})
            raise
        finally:
            denied: dict[ErrorCode, list[Mapping[str, Any]]] = {}
            for row in ctx.obj.denied:
                fields = row._asdict()
                denied.setdefault(ErrorCode[fields["error"]], []).append(fields)
            _note_grants(ctx, denied)


def _note_grants(ctx: Any, denied: Mapping[ErrorCode, Sequence[Mapping[str, Any]]]) -> None:
    """Note the lines of 'kctl acls add' for what was denied: rows, or the parameters of the command."""
    if not denied:
        return
    from kctl.commands.frame.denials import grant_line, names_in, principal_of  # noqa: PLC0415 - rarely needed

    run, command = ctx.obj, " ".join(ctx.command_path.split()[1:])
    try:
        principal = principal_of(run.client_properties())
    except UsageError:
        principal = None
    for code, items in denied.items():
        line = grant_line(command, code, [name for fields in items for name in names_in(fields, code)], principal)
        if line is not None:
            run.note_once(f"to allow it, an administrator runs: {line}")


class ConfirmedCommand(ClusterCommand):
    """A command that changes a cluster with some options only, and then calls `Invocation.authorize_change`."""

    takes_change_options = True


class ChangingCommand(ConfirmedCommand):
    """A command that changes a cluster, unless --dry-run or --check is given or --execute is not."""

    takes_consent = True

    def invocation(self, common: dict[str, Any], ctx: Any) -> Invocation:
        """Return if the profile in use allows the change.  Raises Refused."""
        run = super().invocation(common, ctx)
        if not (ctx.params.get("dry_run") or ctx.params.get("check") or ctx.params.get("execute") is False):
            run.authorize_change(ctx.command_path)
        run.console.outlive_reader()
        run.changes = SentChanges()
        return run

    def run(self, ctx: Any, common: dict[str, Any]) -> Any:
        """After an interruption or an error, writes what was done, unless the command itself does."""
        try:
            status = super().run(ctx, common)
            ctx.obj.console.flush()  # A full disk is an error of this command.
            return status
        except KeyboardInterrupt:
            changes = ctx.obj.changes
            if changes is not None:
                ctx.obj.console.warn(f"interrupted: {changes}")
            raise
        except (KctlError, OSError):
            changes = ctx.obj.changes
            if changes is not None and changes.has_any:
                ctx.obj.console.warn(f"not completed: {changes}")
            raise


def has_help_option(arguments: Sequence[str]) -> bool:
    """Return whether the command line contains --help or -h before `--`, even if it has errors elsewhere."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--help" in before or "-h" in before
