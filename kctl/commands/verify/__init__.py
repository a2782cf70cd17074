"""`kctl verify`: check that replicas hold the same records."""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "replicas"),
    help="Check that replicas hold the same records.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
