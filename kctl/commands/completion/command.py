"""`kctl completion`."""

from __future__ import annotations

from typing import Annotated

from kctl.commands.catalog import load_all
from kctl.commands.completion import app
from kctl.commands.completion_scripts import script_for
from kctl.commands.declaration import Argument
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation

SHELLS = ("bash", "zsh", "fish")


@app.command(
    "completion",
    examples=(
        "source <(kctl completion bash)",
        "kctl completion zsh > ~/.zsh/completions/_kctl",
        "kctl completion fish > ~/.config/fish/completions/kctl.fish",
    ),
)
def completion(
    run: Invocation, shell: Annotated[str, Argument("Which shell.", metavar="SHELL", choices=SHELLS)]
) -> ExitStatus:
    """Print a completion script for a shell: bash, zsh or fish."""
    run.console.text(script_for(shell, load_all()))
    return ExitStatus.DONE
