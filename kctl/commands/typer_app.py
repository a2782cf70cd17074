"""Turns declarations into a typer app, which reads every command line that `parsing` does not take.

Mostly those are mistakes: typer finds what is wrong and words the complaint.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.main

from kctl.commands.conversion import converted
from kctl.commands.declaration import Argument, Command, Group, Option, Parameter
from kctl.commands.options import all_parameters
from kctl.errors import UsageError


def build(group: Group, run: Callable[[Command, dict[str, Any]], int]) -> typer.Typer:
    """A typer app of all commands of `group`; `run` is called with the command and the values that typer read."""
    app = typer.Typer(help=group.help, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    for command in group.commands.values():
        app.command(command.name, help=command.summary)(_callback(command, run))
    if not group.is_verb:
        app.callback()(lambda: None)  # keeps the verb in the line even when there is only one
    return app


def invoke(app: typer.Typer, words: list[str], *, program: str) -> int:
    """Run the app on `words` and return the exit status; raises UsageError where typer found a mistake."""
    command = typer.main.get_command(app)
    try:
        status = command.main(words, prog_name=program, standalone_mode=False)
    except Exception as error:
        # Where these classes live has moved between typer's versions; what they can do has not.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            complaint = str(error.format_message()).removesuffix(".")
            raise UsageError(f"{complaint}.  Try '{_path(error, program)} --help'.") from None
        if type(error).__name__ == "Abort":
            raise KeyboardInterrupt from None
        raise
    return int(status or 0)


def _path(error: object, program: str) -> str:
    context = getattr(error, "ctx", None)
    return str(context.command_path) if context is not None else program


def _callback(command: Command, run: Callable[[Command, dict[str, Any]], int]) -> Callable[..., int]:
    def callback(**values: Any) -> int:
        return run(command, converted(all_parameters(command), values))

    signature = [_signature_parameter(parameter) for parameter in all_parameters(command)]
    callback.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]  # what typer reads
    callback.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    return callback


def _signature_parameter(parameter: Parameter) -> inspect.Parameter:
    declared = parameter.declared
    text: Any = bool if parameter.is_flag else str  # numbers are converted afterwards, together with those of `parsing`
    type_: Any = list[text] if parameter.repeats else text
    if isinstance(declared, Argument):
        info: Any = typer.Argument(
            help=declared.help,
            metavar=parameter.metavar,
            callback=_choice_of(declared) if declared.choices else None,
        )
    else:
        info = typer.Option(
            *declared.names,
            help=declared.help,
            metavar=None if parameter.is_flag else parameter.metavar,
            callback=_choice_of(declared) if declared.choices else None,
        )
    if not parameter.required and not parameter.is_flag:
        type_ = type_ | None
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if parameter.required else _default_text(parameter),
        annotation=Annotated[type_, info],
    )


def _default_text(parameter: Parameter) -> Any:
    is_number = parameter.type in {int, float} and parameter.default is not None
    return str(parameter.default) if is_number else parameter.default


def _choice_of(declared: Argument | Option) -> Callable[[str | None], str | None]:
    def check(value: str | None) -> str | None:
        if value is not None and value not in declared.choices:
            raise typer.BadParameter(f"'{value}' is not one of {', '.join(declared.choices)}.")
        return value

    return check
