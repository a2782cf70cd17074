"""`kctl tables`: compare the files and tables of exports with their topics.

The verbs are not verbs of `kctl export`, because every word after that is the name of a topic, also `verify`.
"""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "verify", "status"),
    help="Compare exported files and tables with their topics, show how far exports are behind.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
