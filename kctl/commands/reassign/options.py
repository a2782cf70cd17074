"""Options that several verbs of `kctl reassign` take."""

from __future__ import annotations

from typing import Annotated

from kctl.commands.declaration import Option

COMPATS = ("kafka-2.8", "kafka-4")
JsonFile = Annotated[
    str | None,
    Option(
        "--reassignment-json-file",
        metavar="FILE",
        help="Kafka's JSON: partitions and their replicas.",
        complete="file",
    ),
]
Compat = Annotated[
    str | None,
    Option("--compat", choices=COMPATS, help="Print what Kafka's own tool of that version prints, instead of rows."),
]
StateDir = Annotated[
    str | None,
    Option(
        "--state-dir",
        metavar="DIR",
        help="Where throttles that are set are remembered.  Default: kctl/reassign under XDG_STATE_HOME, which is"
        " ~/.local/state.",
        complete="directory",
    ),
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be done and do nothing.")]
