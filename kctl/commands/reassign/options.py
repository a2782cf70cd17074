"""Options that several verbs of `kctl reassign` take."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.integers import parse_integer

JsonFile = Annotated[
    str | None,
    typer.Option("--reassignment-json-file", metavar="FILE", help="Kafka's JSON: partitions and their replicas."),
]
StateDir = Annotated[
    str | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Folder that records the throttles that were set.  Default: kctl/reassign under XDG_STATE_HOME, which is"
        " ~/.local/state.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")]
PlanOutput = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="File for the plan, as Kafka's JSON; beside plan.json, plan-rollback.json contains the reverse plan.",
    ),
]


def broker_ids(text: str | None) -> list[int] | None:
    """Broker ids of a list such as `1,2`, each once; None stays None.  Raises UsageError."""
    return (
        None if text is None else sorted({parse_integer(one, "the id of a broker", low=0) for one in text.split(",")})
    )
