"""`kctl reassign`: move partitions to other brokers, with a throttle that is given back."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("reassign", "Move partitions to other brokers.")

VERBS = ("execute", "status", "verify", "cancel", "list")
"""Modules of this package, one for each verb."""
