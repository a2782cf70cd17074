"""Options that several verbs of `kctl transactions` take."""

from __future__ import annotations

from typing import Annotated

from kctl.commands.declaration import Option

COMPATS = ("kafka-3", "kafka-4")
Compat = Annotated[
    str | None, Option("--compat", choices=COMPATS, help="Print what Kafka's own tool of that version prints.")
]
