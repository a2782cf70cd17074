"""The settings of an engine from the options of an export."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import words_of
from kctl.errors import UsageError
from kctl.system.operating_system import usable_processors
from kctl.tables.engines.engine import EngineSettings
from kctl.tables.engines.local_pool import LocalSettings
from kctl.tables.engines.session import SparkSettings
from kctl.tables.engines.submission import submit_command
from kctl.tables.exec.schema.column_types import Format
from kctl.tables.exec.targets.target import is_object_store
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from kctl.tables.plans.request import ExportRequest

PROCESSES_MAX = 256

_PROPERTIES = {
    "packages": "spark.jars.packages",
    "archives": "spark.archives",
    "py_files": "spark.submit.pyFiles",
}
_COORDINATES = re.compile(r"[^:\s]+:[^:\s]+:[^:\s]+")
_GLOB = re.compile(r"[*?\[{]")
_ONLY_SPARK = ("master", "deploy_mode", "conf", *_PROPERTIES)


def engine_settings(
    run: Invocation, options: Mapping[str, Any], engine: str, *, target: str, decoding: DecodingOptions
) -> EngineSettings:
    """Warn if the engine would send credentials openly.

    Raises UsageError for invalid options, and for options of the other engine.
    """
    processes: int | None = options["processes"]
    if engine == "local":
        for name in _ONLY_SPARK:
            if options[name]:
                raise UsageError(f"--{name.replace('_', '-')} is an option of --engine spark")
        if processes is not None and not 1 <= processes <= PROCESSES_MAX:
            raise UsageError(f"--processes must be 1 to {PROCESSES_MAX}")
        return LocalSettings(processes or usable_processors())
    if processes is not None:
        raise UsageError("--processes is an option of --engine local; for Spark use --master local[N]")
    _check_files_and_packages(options)
    conf = dict(options["conf"] or ())
    conf |= {name: options[option] for option, name in _PROPERTIES.items() if options[option]}
    security = run.client_settings().security
    settings = SparkSettings(
        options["master"] or "local[*]",
        conf,
        is_cluster_mode=options["deploy_mode"] == "cluster",
        packages=tuple(_packages(decoding, uses_tls=security is not None and security.uses_tls, target=target)),
        has_secrets=security is not None,
    )
    if settings.sends_secrets_openly:
        run.console.warn(
            "Spark sends the credentials of --command-config to executors without encryption; "
            "see spark.authenticate and spark.network.crypto.enabled"
        )
    return settings


def _check_files_and_packages(options: Mapping[str, Any]) -> None:
    """Raise UsageError for what Spark would only report after its start, in the words of Java."""
    for name in ("archives", "py_files"):
        option = f"--{name.replace('_', '-')}"
        for text in _items(options[name]):
            path = text.partition("#")[0] if name == "archives" else text
            if "://" not in path and not _GLOB.search(path) and not os.path.exists(path.removeprefix("file:")):
                raise UsageError(f"{option} {text}: there is no such file")
    for text in _items(options["packages"]):
        if not _COORDINATES.fullmatch(text):
            raise UsageError(f"--packages takes GROUP:NAME:VERSION, not '{text}'")


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _packages(decoding: DecodingOptions, *, uses_tls: bool, target: str) -> list[str]:
    """Return the packages that tasks need beside those of every task."""
    formats = {field.format for field in decoding.fields}
    needed = {
        "cryptography": uses_tls,
        "obstore": is_object_store(target),
        "fastavro": Format.AVRO in formats,
        "google.protobuf": Format.PROTOBUF in formats,
    }
    return [name for name, is_needed in needed.items() if is_needed]


# The spark-submit command line of an export, and exports whose driver runs in a cluster.


LEFT_OUT = {"to", "engine", "conf", "packages", "archives", "py_files", "deploy_mode", "dry_run", "no_progress"}
"""Options that are not arguments of the driver, or that have another form there."""
FILES = ("value_schema", "key_schema")


def command_of(run: Invocation, ctx: Any, request: ExportRequest, settings: SparkSettings) -> list[str]:
    """Return the words of the command line.  Raises UsageError if the driver in a cluster would lack a setting."""
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
    return submit_command(
        settings, ["export", "--engine", "spark", *words, "--to", request.target, "--no-progress"], files
    )
