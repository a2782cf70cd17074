"""A typer group whose commands are imported when they are called, so that a command line loads only what it runs."""

from __future__ import annotations

import functools
import importlib
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import typer
import typer.core
import typer.main

from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.command_cache import FULL_HELP
from kctl.commands.frame.help.peer_words import (
    ANSWERS,
    ROOT_OPTIONS,
    VERBS_ANSWERED,
    prefix_match,
    similar_command,
    similar_verb,
)
from kctl.commands.frame.help.text import (
    summary_of,
    write_common_options,
    write_exit_statuses,
    write_first_page,
    write_group_help,
)
from kctl.commands.frame.options.parameters import (
    change_options,
    cluster_options,
    consent_options,
    flags_of,
    is_flag,
    output_options,
)
from kctl.errors import UsageError

_VIEWS = "kctl.commands.compat.registration"
"""What adds the option --compat; imported by its name, as commands are, because it is above the frame."""


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
    sections: Mapping[str, Collection[str]] = {}
    """The members by title, for the help of the program."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the members, in the order of the help."""
        return list(self.members)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command or group of that name.  Raises ImportError when its module is missing."""
        member = self.members.get(cmd_name)
        return None if member is None else load(member)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move common options in front of a noun or verb behind it.  Raises UsageError for an unknown name."""
        leading, name, rest = split_leading(args)
        if name not in self.members and rest and f"{name}-{rest[0]}" in self.members:
            name, rest = f"{name}-{rest[0]}", rest[1:]  # `copy plan` is copy-plan
        if name == "help" and ctx.parent is None:
            return self.parse_args(ctx, [*leading, *rest, "--help"])
        if name in self.members:
            return super().parse_args(ctx, [str(name), *leading, *rest])
        if ctx.parent is None and name in {"--help", "-h", "--all"}:
            ctx.meta[FULL_HELP] = "--all" in args
            return super().parse_args(ctx, [ctx.help_option_names[0]])
        if name in {"--help", "-h"}:
            return super().parse_args(ctx, [ctx.help_option_names[0]])
        if name is not None:
            wrong = f"no such {self._what(ctx, name)}: {name}{self._meant(ctx, name, rest)}"
            raise UsageError(f"{wrong}  Try '{ctx.command_path} --help'.")
        if leading and takes_value(leading[-1]):
            raise UsageError(f"option {leading[-1]} requires a value.  Try '{ctx.command_path} --help'.")
        formatter = ctx.make_formatter()
        self.format_help(ctx, formatter)
        sys.stderr.write(formatter.getvalue().rstrip("\n") + "\n")
        raise typer.Exit(ExitStatus.USAGE)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs of a noun, or of the program the first page, or with --all the whole help."""
        if ctx.parent is None and not ctx.meta.get(FULL_HELP):
            write_first_page(formatter, self.sections)
            return
        rows = [(name, member.summary or summary_of(load(member))) for name, member in self.members.items()]
        if ctx.parent is not None:
            write_group_help(self, ctx, formatter, {f"{self.kind.capitalize()}s": rows})
            return
        summaries = dict(rows)
        tables = {title: [(noun, summaries[noun]) for noun in nouns] for title, nouns in self.sections.items()}
        write_group_help(self, ctx, formatter, tables)
        write_common_options(formatter)
        write_exit_statuses(formatter)

    def _what(self, ctx: Any, name: str) -> str:
        kind = "option" if name.startswith("-") else self.kind
        return kind if ctx.parent is None else f"{kind} of {ctx.command_path}"

    def _meant(self, ctx: Any, name: str, rest: list[str]) -> str:
        """Return the line to type instead, as the end of an error message."""
        if ctx.parent is not None and (answer := VERBS_ANSWERED.get((ctx.info_name, name))):
            return f".  Did you mean 'kctl {answer}'?"
        if name.startswith("-"):
            if answer := ANSWERS.get(name):
                return f".  {answer}."
            meant = ROOT_OPTIONS.get(name) if ctx.parent is None else None
        else:
            matches = prefix_match(name, self.members)
            if ctx.parent is None:
                meant = matches[0] if len(matches) == 1 else similar_command(name, self.members)
            else:
                noun = ctx.info_name
                meant = f"{noun} {matches[0]}" if len(matches) == 1 else similar_verb(noun, name, self.members)
            if len(matches) > 1:
                return f", which may be {', '.join(matches)}."
        if not meant:
            return "."
        if name.startswith("-"):
            return f".  Did you mean 'kctl {meant}'?"
        return f".  Did you mean '{shlex.join(['kctl', *meant.split(), *rest])}'?"


def lazy_group(
    members: Mapping[str, Member], kind: str, sections: Mapping[str, Collection[str]] | None = None
) -> type[LazyGroup]:
    """Return the class of a group with these members, for `typer.Typer(cls=...)`; `kind` names a member in errors."""
    return type("Group", (LazyGroup,), {"members": members, "kind": kind, "sections": sections or {}})


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
    for command in app.registered_commands:
        importlib.import_module(_VIEWS).register(command, member.module, member.verb)
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
