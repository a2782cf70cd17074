"""The nouns of kctl and where they live, so that a command line imports only its own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.commands.declaration import Group

NOUNS: dict[str, tuple[str, str]] = {
    "topics": ("kctl.commands.topics:app", "List, describe, create, alter and delete topics."),
    "produce": ("kctl.commands.produce:app", "Write lines from standard input to a topic."),
    "consume": ("kctl.commands.consume:app", "Read records of a topic."),
    "groups": ("kctl.commands.groups:app", "Look at consumer groups, delete them, reset their offsets."),
    "transactions": ("kctl.commands.transactions:app", "Look at transactions, find hanging ones and abort them."),
    "producers": ("kctl.commands.producers:app", "Look at idempotent and transactional producers."),
    "offsets": ("kctl.commands.offsets:app", "Look up offsets of partitions."),
    "cluster": ("kctl.commands.cluster:app", "Describe a cluster, judge its health, run one for development."),
    "reassign": ("kctl.commands.reassign:app", "Move partitions to other brokers."),
    "elect": ("kctl.commands.elect:app", "Elect leaders of partitions."),
    "configs": ("kctl.commands.configs:app", "Look at and change properties of topics and brokers."),
    "dump-log": ("kctl.commands.dump_log:app", "Show what log and index files hold."),
    "broker": ("kctl.commands.broker:app", "Start, stop and check a broker."),
    "zookeeper": ("kctl.commands.zookeeper:app", "Run the ZooKeeper-compatible service; look into any ensemble."),
    "spark": ("kctl.commands.spark:app", "Export topics to Parquet with Apache Spark."),
    "completion": ("kctl.commands.completion:app", "Print a completion script for bash, zsh or fish."),
}
"""Noun -> where its Group is, and what help says about it: a test holds that against the Group's own words."""


def load(noun: str) -> Group:
    """The declarations of a noun.  Raises ImportError when its module is missing."""
    module_name, _, attribute = NOUNS[noun][0].partition(":")
    group: Group = getattr(importlib.import_module(module_name), attribute)
    return group


def load_all() -> dict[str, Group]:
    """All declarations, which imports all commands: for completion scripts and the reference."""
    return {noun: load(noun) for noun in NOUNS}
