"""`kctl completion`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kctl.commands.completion.scripts import script_for
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.root import all_commands

app = typer.Typer(add_completion=False)


Shell = Literal["bash", "zsh", "fish"]


@app.command(
    "completion",
    cls=LocalCommand,
    epilog=examples(
        "source <(kctl completion bash)",
        "kctl completion zsh > ~/.zsh/completions/_kctl",
        "kctl completion fish > ~/.config/fish/completions/kctl.fish",
    ),
)
def completion(
    ctx: typer.Context, shell: Annotated[Shell, typer.Argument(help="Which shell.", metavar="SHELL")]
) -> ExitStatus:
    """Print a completion script for bash, zsh or fish."""
    run: Invocation = ctx.obj
    run.console.text(script_for(shell, all_commands()))
    return ExitStatus.DONE
