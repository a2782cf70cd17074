"""A file that is to be read and does not exist is bad input, which is known before a cluster is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl

LINES = [
    "topics list --command-config {missing}",
    "produce orders --file {missing}",
    "copy orders archive --from-config {missing}",
    "copy orders archive --to-config {missing}",
    "groups reset-offsets billing --from-file {missing} --dry-run",
    "groups restore billing --backup {missing}",
    "groups import {missing}",
    "groups reset-streams billing --from-file {missing}",
    "records delete --offset-json-file {missing} --yes",
    "perf produce events --payload-file {missing} --yes",
    "perf latency events --payload-file {missing} --yes",
    "reassign execute --reassignment-json-file {missing}",
    "reassign verify --reassignment-json-file {missing}",
    "reassign cancel --reassignment-json-file {missing}",
    "reassign status --reassignment-json-file {missing}",
    "elect --preferred --path-to-json-file {missing}",
    "configs diff topic orders --file {missing}",
    "configs diff topic orders --other-command-config {missing}",
    "plan {missing}",
    "apply {missing}",
    "acls check User:alice read topic:orders --from {missing}",
    "acls apply {missing}",
    "users list --zookeeper 127.0.0.1:1 --zk-tls-config-file {missing}",
    "users create bob --password-file {missing}",
    "users alter bob --password-file {missing}",
    "dump-log {missing}",
    "dump-log --summary {missing}",
    "dump-log --compat kafka-3 --files {missing}",
    "broker start --config {missing}",
    "broker check --config {missing}",
    "registry serve --port 0 --user-file {missing}",
    "broker zookeeper-get / --zk-tls-config-file {missing}",
    "profile add staging --bootstrap-server kafka1:9092 --command-config {missing}",
]


@for_rows("line", LINES)
def test_missing_file_is_invalid_usage(kctl: Kctl, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", "127.0.0.1:1")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    missing = tmp_path / "missing"
    ran = kctl(line.format(missing=missing))
    assert (ran.status, str(missing) in ran.err) == (ExitStatus.USAGE, True), ran
    assert "No such file" in ran.err
