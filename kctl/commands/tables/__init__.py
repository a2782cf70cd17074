"""`kctl tables`: compare the files and tables of exports with their topics, import them, profile topics.

The verbs are not verbs of `kctl export`, because every word after that is the name of a topic, also `verify`.
"""

from __future__ import annotations

import typer

from kctl.commands.lazy_group import verbs

app = typer.Typer(
    cls=verbs(__name__, "verify", "status", "import", "compact", "profile"),
    help="Compare exports with their topics, show how far they are behind, import and compact them; profile topics.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
