"""`kctl topics`: list, describe, create, alter and delete topics."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "list": "list",
            "describe": "describe",
            "offsets": "offsets",
            "create": "changes",
            "alter": "changes",
            "delete": "changes",
            "set-replication": "replication",
        },
    ),
    help="List, describe, create, alter and delete topics; look up offsets.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
