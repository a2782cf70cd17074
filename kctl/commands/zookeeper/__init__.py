"""`kctl zookeeper`: run the ZooKeeper-compatible service alone; look into any ensemble."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("zookeeper", "Run the ZooKeeper-compatible service; look into any ensemble.")

VERBS = ("start", "ls", "get", "stat")
"""Modules of this package, one for each verb."""
