"""`kctl tables`: compare the files and tables of exports with their topics, import them, profile topics.

The verbs are not verbs of `kctl export`, because every word after that is the name of a topic, also `verify`.
"""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "verify": "exports",
            "status": "exports",
            "import": "exports",
            "compact": "exports",
            "maintain": "exports",
            "profile": "profile",
            "spark-warmup": "warmup",
        },
    ),
    help="Compare exports with their topics, show how far they lag, import and maintain them; profile topics.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
