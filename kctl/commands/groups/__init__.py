"""`kctl groups`: describe consumer groups and their lag, delete them, reset their offsets."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "list": "listing",
            "describe": "listing",
            "lag": "lag",
            "members": "listing",
            "history": "backups",
            "delete": "deletion",
            "delete-offsets": "deletion",
            "reset-offsets": "resets",
            "reset-streams": "streams",
            "tasks": "streams_groups",
            "topology": "streams_groups",
            "restore": "backups",
            "export": "documents",
            "import": "documents",
        },
    ),
    help="Describe consumer groups and their lag, delete them, reset their offsets.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
