"""The option --compat of commands whose text Kafka has changed since 2.8, and in 4 not again."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

KAFKA_28 = "kafka-2.8"
KAFKA_3 = "kafka-3"
KAFKA_4 = "kafka-4"

CompatVersion = Literal["kafka-2.8", "kafka-3", "kafka-4"]
"""kafka-3 is the text of 3.9."""
Compat = Annotated[
    CompatVersion | None,
    typer.Option(
        "--compat",
        help="Print what Kafka's own tool of that version prints on stdout; the exit status stays that of kctl.",
    ),
]
