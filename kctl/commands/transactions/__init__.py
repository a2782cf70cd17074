"""`kctl transactions`: look at transactions, find those that hang, and abort them."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("transactions", "Look at transactions, find hanging ones and abort them.")

VERBS = ("list", "describe", "find_hanging", "abort")
"""Modules of this package, one for each verb."""
