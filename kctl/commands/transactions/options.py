"""Options that several verbs of `kctl transactions` take."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

CompatVersion = Literal["kafka-3", "kafka-4"]
Compat = Annotated[
    CompatVersion | None, typer.Option("--compat", help="Print what Kafka's own tool of that version prints.")
]
