"""A typer group whose commands are imported when they are called, so that a command line loads only what it runs."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import typer
import typer.core
import typer.main

from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.peer_words import command_meant, noun_option_meant, root_option_meant, verb_meant
from kctl.commands.frame.help.text import summary_of, write_exit_statuses, write_group_help
from kctl.commands.frame.options.parameters import (
    change_options,
    cluster_options,
    consent_options,
    flags_of,
    is_flag,
    output_options,
)
from kctl.errors import UsageError


class Member(NamedTuple):
    """A command of a group that is not imported yet."""

    module: str
    """The module whose `app` is the typer.Typer of the command."""
    summary: str | None = None
    """Its line in the help of the group; None for the first paragraph of the command's own help."""
    verb: str | None = None
    """Its name among the `verbs` of the module; None if it is the `app` of the module."""


class LazyGroup(typer.core.TyperGroup):
    """Imports a member when it is called, or when help lists a member without a summary."""

    members: Mapping[str, Member] = {}
    kind = "verb"
    _lists_members = False
    """True while rich lists the members, which needs their summaries only."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the members, in the order of the help."""
        return list(self.members)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command or group of that name.  Raises ImportError when its module is missing."""
        member = self.members.get(cmd_name)
        if member is not None and member.summary and self._lists_members:
            return typer.core.TyperCommand(cmd_name, help=member.summary)
        return None if member is None else load(member)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move common options in front of a noun or verb behind it.  Raises UsageError for an unknown name."""
        leading, name, rest = split_leading(args)
        if name == "help" and ctx.parent is None:
            return self.parse_args(ctx, [*leading, *rest, "--help"])
        if name in self.members:
            return super().parse_args(ctx, [str(name), *leading, *rest])
        if name in {"--help", "-h"}:
            return super().parse_args(ctx, [ctx.help_option_names[0]])
        if name is not None:
            wrong = f"no such {self._what(ctx, name)}: {name}{self._meant(ctx, name, rest)}"
            raise UsageError(f"{wrong}  Try '{ctx.command_path} --help'.")
        if leading and takes_value(leading[-1]):
            raise UsageError(f"option {leading[-1]} requires a value.  Try '{ctx.command_path} --help'.")
        formatter = ctx.make_formatter()
        self.write_plain_help(ctx, formatter)
        sys.stderr.write(formatter.getvalue().rstrip("\n") + "\n")
        raise typer.Exit(ExitStatus.USAGE)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write help: with rich to a terminal, otherwise as plain text."""
        if sys.stdout.isatty():
            self._lists_members = True
            super().format_help(ctx, formatter)
            self._lists_members = False
            if ctx.parent is None:
                write_exit_statuses(formatter)
        else:
            self.write_plain_help(ctx, formatter)

    def write_plain_help(self, ctx: Any, formatter: Any) -> None:
        """Write help without rich."""
        rows = [(name, member.summary or summary_of(load(member))) for name, member in self.members.items()]
        write_group_help(self, ctx, formatter, rows, f"{self.kind.capitalize()}s")
        if ctx.parent is None:
            write_exit_statuses(formatter)

    def _what(self, ctx: Any, name: str) -> str:
        kind = "option" if name.startswith("-") else self.kind
        return kind if ctx.parent is None else f"{kind} of {ctx.command_path}"

    def _command_meant(self, name: str, following: str) -> str | None:
        """Return the command that is meant, without its verb if the noun does not have it."""
        meant = command_meant(name, following, self.members)
        noun, _, verb = (meant or "").partition(" ")
        loaded = load(self.members[noun]) if verb else None
        return noun if isinstance(loaded, LazyGroup) and verb not in loaded.members else meant

    def _meant(self, ctx: Any, name: str, rest: list[str]) -> str:
        if ctx.parent is None:
            following = next((word for word in rest if not word.startswith("-")), "")
            meant = root_option_meant(name) if name.startswith("-") else self._command_meant(name, following)
        elif name.startswith("-"):
            meant = noun_option_meant(ctx.info_name, name, self.members)
        else:
            meant = verb_meant(ctx.info_name, name, self.members)
        if not meant:
            return "."
        return f".  Did you mean {meant if meant.startswith('-') else f'kctl {meant}'}?"


def lazy_group(members: Mapping[str, Member], kind: str) -> type[LazyGroup]:
    """Return the class of a group with these members, for `typer.Typer(cls=...)`; `kind` names a member in errors."""
    return type("Group", (LazyGroup,), {"members": members, "kind": kind})


def verb_group(noun: str, verbs: Mapping[str, str] | Sequence[str]) -> type[LazyGroup]:
    """Return the class of a noun: a package whose module of each verb `verbs` names, or one module with all these
    verbs.
    """
    modules = {verb: f"{noun}.{verbs[verb]}" if isinstance(verbs, Mapping) else noun for verb in verbs}
    return lazy_group({verb: Member(module, verb=verb) for verb, module in modules.items()}, "verb")


@functools.cache
def load(member: Member) -> Any:
    """Import a member and make its command, once in a process.  Raises ImportError."""
    module = importlib.import_module(member.module)
    app: typer.Typer
    if member.verb is None:
        app = module.app
    else:  # Only this verb is built: each option of a command takes time.
        app = typer.Typer(add_completion=False)
        app.registered_commands = [verb for verb in module.verbs.registered_commands if verb.name == member.verb]
    return typer.main.get_command(app) if app.registered_commands else typer.main.get_group(app)


def split_leading(arguments: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Return the common options before the first other word, that word, and the rest."""
    position = 0
    while position < len(arguments):
        flag, equals, _ = arguments[position].partition("=")
        with_value = takes_value(flag)
        if with_value is None:
            return arguments[:position], arguments[position], arguments[position + 1 :]
        position += 2 if with_value and not equals else 1
    return arguments, None, []


def takes_value(flag: str) -> bool | None:
    """Return whether the common option `flag` has a value; None if it is not a common option."""
    for option in [*consent_options(), *cluster_options(), *change_options(), *output_options()]:
        if flag in flags_of(option):
            return not is_flag(option)
    return None
