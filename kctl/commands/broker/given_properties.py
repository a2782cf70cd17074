"""The options of `kctl broker` that set properties."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.errors import UsageError
from kctl.integers import PORT_MAX

ConfigFile = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Kafka's server.properties.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("-o", "--override", metavar="NAME=VALUE", help="Set a property; overrides the file."),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", metavar="N", help="Port on 127.0.0.1, 0 for a free one.  Default: 9092.", max=PORT_MAX, min=0
    ),
]


def overrides_of(
    given: list[str], *, port: int | None, zookeeper: str | None = None, metrics_port: int | None = None
) -> dict[str, str]:
    """The properties of -o and of the options that stand for properties.  Raises UsageError."""
    overrides: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-o {each}: properties are given as name=value")
        overrides[name.strip()] = value
    shorthands: tuple[tuple[str, str, str | None], ...] = (
        ("--port", "listeners", f"PLAINTEXT://127.0.0.1:{port}" if port is not None else None),
        ("--zookeeper", "zookeeper.connect", zookeeper),
        ("--metrics-port", "metrics.port", None if metrics_port is None else str(metrics_port)),
    )
    for option, name, text in shorthands:
        if text is not None:
            if name in overrides:
                raise UsageError(f"{option} and -o {name}= contradict each other: give one of them")
            overrides[name] = text
    return overrides
