"""The option --compat: the versions of Kafka whose output commands print, and what holds for all of them."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

KAFKA_28 = "kafka-2.8"
KAFKA_3 = "kafka-3"
KAFKA_4 = "kafka-4"

CompatVersion = Literal["kafka-2.8", "kafka-3", "kafka-4"]
COMPAT_HELP = (
    "Print what Kafka's own tool of that version (kafka-3: 3.9) prints on stdout; the exit status stays that of kctl."
)
Compat = Annotated[CompatVersion | None, typer.Option("--compat", help=COMPAT_HELP)]
CompatSinceKafka3 = Annotated[Literal["kafka-3", "kafka-4"] | None, typer.Option("--compat", help=COMPAT_HELP)]
"""Of tools that 2.8 lacks."""
