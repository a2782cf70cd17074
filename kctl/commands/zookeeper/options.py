"""Options of `kctl zookeeper` that select the ensemble."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_CONNECT = "127.0.0.1:2181"
Connect = Annotated[
    str,
    typer.Option("--zookeeper", metavar="HOST:PORT[,...][/CHROOT]", help="Ensemble to read from."),
]
TlsConfigFile = Annotated[
    str | None,
    typer.Option(
        "--zk-tls-config-file",
        metavar="FILE",
        help="Properties file with zookeeper.ssl... settings, as Kafka's tools take it.",
    ),
]
