"""Options and errors that the verbs of `kctl tables` share."""

from __future__ import annotations

from typing import Annotated

import typer

Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Iceberg: the catalogue of the export, as for 'kctl export'.  Default: the database in the target.",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="Iceberg: namespace of the tables.  Default: kafka."),
]
TARGET_HELP = "Folder or URL of an export, as --to of 'kctl export'."
