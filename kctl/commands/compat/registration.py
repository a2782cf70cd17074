"""The verbs that print what Apache Kafka's own tools print with --compat: the only place that knows which they are.

The frame passes each command that it loads to `register`, which adds the option.  With it a view, a function of this
package that is imported then, is called instead of the function of the verb.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from kctl.commands.frame.options.parameters import KAFKA_PANEL
from kctl.output.console import Columns, Console, Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kctl.commands.frame.invocation import Invocation

Version = Literal["kafka-2.8", "kafka-3", "kafka-4"]
HELP = (
    "Print what Kafka's own tool of that version (kafka-3: 3.9) prints on stdout; the exit status stays that of kctl."
)


class Imitation(NamedTuple):
    """How a verb imitates one of Kafka's tools."""

    view: str
    """The module of this package and its function: `view(call, **options) -> ExitStatus`."""
    help: str = HELP
    flags: Mapping[str, str] = {}
    """Further options, which only the view has, and their help."""
    example: str | None = None


IMITATIONS = {
    "acls add": Imitation("resources:add_acls"),
    "acls list": Imitation("resources:list_acls"),
    "acls remove": Imitation("resources:remove_acls"),
    "configs alter": Imitation("resources:alter_configs"),
    "configs describe": Imitation(
        "resources:describe_configs", example="kctl configs describe user --compat kafka-2.8"
    ),
    "consume": Imitation("topics:consume", f"With --formatter: {HELP[0].lower()}{HELP[1:]}"),
    "dump_log": Imitation(
        "dump_log:dump",
        f"{HELP}  With --verify-only, index entries are not printed.",
        {
            "deep_iteration": "With --compat: also print a line per record.",
            "skip_record_metadata": "With --compat: print only keys and values of records.",
        },
        "kctl dump-log --compat kafka-4 --print-data-log --files a.log,b.log    (Kafka's own text)",
    ),
    "groups describe": Imitation(
        "groups:describe_groups", flags={"verbose": "With --compat: more columns, as in Kafka's tool."}
    ),
    "groups list": Imitation(
        "groups:list_groups", flags={"verbose": "With --compat: show states, as --state of Kafka's tool does."}
    ),
    "groups reset-offsets": Imitation("groups:reset_offsets", f"{HELP}  Nothing is done unless --yes is given."),
    "topics offsets": Imitation("topics:get_offsets"),
    "reassign cancel": Imitation("reassign:cancel_moves"),
    "reassign execute": Imitation("reassign:execute_moves"),
    "reassign list": Imitation("reassign:list_moves"),
    "reassign verify": Imitation("reassign:verify_moves"),
    "topics create": Imitation("topics:create_topics"),
    "topics describe": Imitation(
        "topics:describe_topics",
        f"{HELP}  Internal topics are included.",
    ),
    "topics list": Imitation("topics:list_topics", f"{HELP}  Internal topics are included."),
}
"""By noun, as its module is called, and verb."""


@dataclass(frozen=True)
class Call:
    """A command line with --compat."""

    run: Invocation
    version: Version
    verb: Callable[..., Any]
    options: dict[str, Any]
    """The options and arguments of the verb, by parameter."""

    def carry_out(self, **changed: Any) -> Any:
        """Call the function of the verb, with these options changed; returns its status."""
        return self.verb(**{**self.options, **changed})

    def collect_rows(self, **changed: Any) -> tuple[Any, list[Any]]:
        """Call the function of the verb without its output; returns its status and its rows."""
        console = self.run.console
        collecting = _CollectingConsole(console)
        self.run.console = collecting
        try:
            return self.carry_out(**changed), collecting.collected
        finally:
            self.run.console = console


class _CollectingConsole(Console):
    """A console that shares the state of another one, and collects rows instead of showing them."""

    __slots__ = ("collected",)

    def __init__(self, console: Console) -> None:
        self.__dict__ = console.__dict__
        self.collected: list[Any] = []

    def show(self, columns: Columns, items: Iterable[Row], *, rows: Iterable[Row] | None = None) -> None:
        """Collect the rows."""
        self.collected += items


def register(command: Any, module: str, verb: str | None) -> None:
    """Add --compat to a command that is declared in `module`, if it imitates a tool; `command` is typer's."""
    noun = module.split(".")[2]
    imitation = IMITATIONS.get(noun if verb is None else f"{noun} {verb}")
    if imitation is None:
        return
    if imitation.example is not None:
        command.epilog += f"\n\n{imitation.example}"
    command.callback = _with_option(command.callback, imitation)


def _with_option(function: Callable[..., Any], imitation: Imitation) -> Callable[..., Any]:
    """Return the function of a verb with --compat and the flags of the view as further parameters."""

    @functools.wraps(function)
    def dispatch(**options: Any) -> Any:
        version = options.pop("compat")
        flags = {name: options.pop(name) for name in imitation.flags}
        if version is None:
            return function(**options)
        module, _, name = imitation.view.partition(":")
        view = getattr(importlib.import_module(f"kctl.commands.compat.{module}"), name)
        run: Invocation = options["ctx"].obj
        run.console.has_output = True  # A tool that prints nothing prints no empty document either.
        return view(call=Call(run, version, function, options), **options, **flags)

    added: dict[str, Any] = {
        "compat": Annotated[Version | None, typer.Option("--compat", help=imitation.help, rich_help_panel=KAFKA_PANEL)],
        **{
            name: Annotated[bool, typer.Option(f"--{name.replace('_', '-')}", help=text, rich_help_panel=KAFKA_PANEL)]
            for name, text in imitation.flags.items()
        },
    }
    signature = inspect.signature(function, eval_str=True)
    parameters = [
        *signature.parameters.values(),
        *(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=annotation,
                default=False if name in imitation.flags else None,
            )
            for name, annotation in added.items()
        ),
    ]
    dispatch.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what typer reads
    return dispatch
