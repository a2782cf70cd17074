"""`kctl configs`: look at and change properties of topics and brokers."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("configs", "Look at and change properties of topics and brokers.")

VERBS = ("describe", "alter")
"""Modules of this package, one for each verb."""
