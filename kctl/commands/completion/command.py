"""`kctl completion`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation

app = typer.Typer(add_completion=False)


Shell = Literal["bash", "zsh", "fish"]
SCRIPTS = {"bash": "kctl.bash", "zsh": "_kctl", "fish": "kctl.fish"}
"""Each shell and the name by which it finds its script."""


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
    run.console.text((Path(__file__).with_name("shells") / SCRIPTS[shell]).read_text(encoding="utf-8"))
    return ExitStatus.DONE
