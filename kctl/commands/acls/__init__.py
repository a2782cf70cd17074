"""`kctl acls`: list, add, remove, check, query, export and apply access control lists."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "list": "rules",
            "add": "changes",
            "remove": "changes",
            "check": "rules",
            "who-can": "access",
            "what-can": "access",
            "export": "changes",
            "apply": "changes",
        },
    ),
    help="List, change, check, export and apply access control lists; who may do what.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
