"""`kctl cluster`: describe a cluster, judge its health, run one for development."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("cluster", "Describe a cluster, judge its health, run one for development.")

VERBS = ("describe", "log_dirs", "health", "start", "status", "stop")
"""Modules of this package, one for each verb."""
