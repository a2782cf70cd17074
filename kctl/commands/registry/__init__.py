"""`kctl registry`: schemas of a schema registry, and a registry that keeps them in a topic."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "list": "schemas",
            "describe": "schemas",
            "compatibility": "schemas",
            "check": "schemas",
            "register": "schemas",
            "delete": "schemas",
            "serve": "serve",
        },
    ),
    help="List, describe, check, register and delete schemas of a schema registry; serve one.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
