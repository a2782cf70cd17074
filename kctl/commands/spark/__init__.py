"""`kctl spark`: move topics into files with Apache Spark."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("spark", "Export topics to Parquet with Apache Spark.")

VERBS = ("export", "warmup")
"""Modules of this package, one for each verb."""
