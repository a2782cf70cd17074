"""`kctl producers`: what partitions remember of idempotent and transactional producers."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("producers", "Look at idempotent and transactional producers.")

VERBS = ("describe",)
"""Modules of this package, one for each verb."""
