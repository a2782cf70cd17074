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

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
import typer.core

from kctl.client.guard import SentChanges
from kctl.commands.exit_status import ExitStatus
from kctl.commands.help import examples as examples  # noqa: PLC0414 - part of every declaration
from kctl.commands.help import summary_of, write_command_help, write_exit_statuses
from kctl.commands.invocation import Invocation
from kctl.commands.names_from_input import takes_names, with_names_from_input
from kctl.commands.options import change_options, cluster_options, consent_options, output_options
from kctl.commands.parameters import Parameter, flags_of
from kctl.commands.shown import shown_by
from kctl.commands.values_of_parameters import check
from kctl.console import Console, Format
from kctl.errors import KctlError, UsageError


class LocalCommand(typer.core.TyperCommand):
    """A command with the output options; its function gets an `Invocation` as `ctx.obj`."""

    takes_cluster_options = False
    takes_change_options = False
    takes_consent = False

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        declared: list[Parameter] = list(self.params)
        own_flags = {flag for param in declared for flag in flags_of(param)}
        # A command's own option replaces the common one of the same name.
        self.common_params = [param for param in self.common_options() if not own_flags.intersection(flags_of(param))]
        self.params = [*declared, *self.common_params]
        self.own_params = declared + [param for param in self.common_params if param in consent_options()]
        """Those that the documentation describes for each command, not once for all."""

    def common_options(self) -> list[Parameter]:
        """The options that commands of this class have in common."""
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
        """Prints the schema of the output and ends the command.  Raises UsageError if it shows no rows."""
        from kctl.commands.json_schema import schema_text  # noqa: PLC0415 - rarely used

        shown = shown_by(self.callback)
        if shown is None:
            raise UsageError(f"{ctx.command_path} shows no rows, so that there is no schema")
        Console.standard().text(schema_text(ctx.command_path, summary_of(self), shown, is_line=is_line))
        raise typer.Exit(ExitStatus.DONE)

    def invoke(self, ctx: Any) -> Any:
        """Calls the function of the command, with an `Invocation` of the common options as `ctx.obj`."""
        common = {str(param.name): ctx.params.pop(str(param.name)) for param in self.common_params}
        ctx.obj = self.invocation(common, ctx)
        status = self.run(ctx, common)
        self._complete_document(ctx)
        return status

    def _complete_document(self, ctx: Any) -> None:
        """Writes the empty list of json and yaml if the command has found nothing to show."""
        shown, console = shown_by(self.callback), ctx.obj.console
        writes_other_text = ctx.params.get("compat") is not None
        if shown and shown.is_list and console.format.is_document and not (console.has_output or writes_other_text):
            console.show([], [])

    def run(self, ctx: Any, common: dict[str, Any]) -> Any:
        """Calls the function of the command and returns its status."""
        return super().invoke(ctx)

    def invocation(self, common: dict[str, Any], ctx: Any) -> Invocation:
        """The invocation with these values of the common options."""
        console = Console.standard(
            common["format_"],
            header=bool(common.get("header")),
            no_color=common["no_color"],
            quiet=common["quiet"],
            human=bool(common.get("human")),
        )
        return Invocation(console, common)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes help: with rich to a terminal, otherwise as plain text."""
        if sys.stdout.isatty():
            super().format_help(ctx, formatter)
            write_exit_statuses(formatter)
        else:
            self.write_plain_help(ctx, formatter)

    def write_plain_help(self, ctx: Any, formatter: Any) -> None:
        """Write help without rich."""
        write_command_help(self, ctx, formatter)


class LocalChange(LocalCommand):
    """A command that changes files."""

    takes_consent = True

    def invocation(self, common: dict[str, Any], ctx: Any) -> Invocation:
        """The change is completed although the reader of its output leaves."""
        run = super().invocation(common, ctx)
        run.console.outlive_reader()
        return run


class ClusterCommand(LocalCommand):
    """A command that connects to a cluster."""

    takes_cluster_options = True

    def invocation(self, common: dict[str, Any], ctx: Any) -> Invocation:
        """Applies the output format of the profile in use."""
        run = super().invocation(common, ctx)
        if common["format_"] is None and run.profile is not None and run.profile.format:
            Console.default_format = run.console.format = Format(run.profile.format)
        return run


class ConfirmedCommand(ClusterCommand):
    """A command that changes a cluster with some options only, and then calls `Invocation.authorize_change`."""

    takes_change_options = True


class ChangingCommand(ConfirmedCommand):
    """A command that changes a cluster, unless --dry-run or --check is given or --execute is not."""

    takes_consent = True

    def invocation(self, common: dict[str, Any], ctx: Any) -> Invocation:
        """Returns if the profile in use allows the change.  Raises Refused."""
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
    """True if the command line contains --help or -h before `--`, even if it has errors elsewhere."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--help" in before or "-h" in before
