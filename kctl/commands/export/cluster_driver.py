"""The spark-submit command line of an export, and exports whose driver runs in a cluster."""

from __future__ import annotations

import os
from typing import Any

from kctl.commands.invocation import Invocation
from kctl.commands.parameters import words_of
from kctl.errors import UsageError
from kctl.spark.decodings import FieldOptions
from kctl.spark.export_request import ExportRequest
from kctl.spark.session import SparkSettings
from kctl.spark.submission import submit_command

LEFT_OUT = {"to", "engine", "conf", "packages", "archives", "py_files", "deploy_mode", "dry_run", "no_progress"}
"""Options that are not arguments of the driver, or that have another form there."""
FILES = ("value_schema", "key_schema")


def command_of(run: Invocation, ctx: Any, request: ExportRequest, settings: SparkSettings) -> list[str]:
    """The words of the command line.  Raises UsageError if the driver in a cluster would lack a setting."""
    if settings.is_cluster_mode and run.profile is not None:
        raise UsageError("a profile is a file of this machine: use --bootstrap-server and --command-config")
    given = {name: value for name, value in ctx.params.items() if name not in LEFT_OUT}
    files = [given[name] for name in FILES if given.get(name) and not FieldOptions.is_in_registry(given[name])]
    if run.config_file:
        given["command_config"] = run.config_file
        files.append(run.config_file)
    if settings.is_cluster_mode:
        given |= {name: os.path.basename(value) for name, value in given.items() if value in files}
    else:
        files = []
    client = run.client_settings()
    servers = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in client.bootstrap)
    given |= {"bootstrap_server": servers, "timeout": f"{client.timeout_ms}ms"}
    words = words_of(ctx.command.params, given)
    return submit_command(settings, ["spark", "export", *words, "--to", request.target, "--no-progress"], files)
