"""`kctl cluster`: describe a cluster, check its health, run one for development."""

from __future__ import annotations

import typer

from kctl.commands.frame.lazy_group import verb_group

app = typer.Typer(
    cls=verb_group(
        __name__,
        {
            "describe": "state",
            "quorum": "quorum",
            "log-dirs": "state",
            "verify": "verification",
            "api-versions": "api_versions",
            "roll": "restarts",
            "maintenance": "restarts",
            "add-broker": "membership",
            "remove-broker": "membership",
            "health": "state",
            "start": "development",
            "status": "development",
            "stop": "development",
        },
    ),
    help="Describe a cluster and its controllers, check its health, restart it, add and remove brokers, run one.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)
