"""The nouns of kctl and where they live, so that a command line imports only its own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.commands.declaration import Group

NOUNS: dict[str, tuple[str, str]] = {
    "topics": ("kctl.commands.topics", "List, describe, create, alter and delete topics."),
    "produce": ("kctl.commands.produce", "Write lines from standard input to a topic."),
    "consume": ("kctl.commands.consume", "Read records of a topic."),
    "groups": ("kctl.commands.groups", "Look at consumer groups, delete them, reset their offsets."),
    "transactions": ("kctl.commands.transactions", "Look at transactions, find hanging ones and abort them."),
    "producers": ("kctl.commands.producers", "Look at idempotent and transactional producers."),
    "offsets": ("kctl.commands.offsets", "Look up offsets of partitions."),
    "cluster": ("kctl.commands.cluster", "Describe a cluster, judge its health, run one for development."),
    "reassign": ("kctl.commands.reassign", "Move partitions to other brokers."),
    "elect": ("kctl.commands.elect", "Elect leaders of partitions."),
    "configs": ("kctl.commands.configs", "Look at and change properties of topics and brokers."),
    "dump-log": ("kctl.commands.dump_log", "Show what log and index files hold."),
    "broker": ("kctl.commands.broker", "Start, stop and check a broker."),
    "zookeeper": ("kctl.commands.zookeeper", "Run the ZooKeeper-compatible service; look into any ensemble."),
    "spark": ("kctl.commands.spark", "Export topics to Parquet with Apache Spark."),
    "completion": ("kctl.commands.completion", "Print a completion script for bash, zsh or fish."),
}
"""Noun -> where its Group is, and what help says about it: a test holds that against the Group's own words."""


def load(noun: str) -> Group:
    """The declarations of a noun.  Raises ImportError when its module is missing."""
    package = importlib.import_module(NOUNS[noun][0])
    for verb in package.VERBS:
        importlib.import_module(f"{package.__name__}.{verb}")
    group: Group = package.app
    return group


def load_all() -> dict[str, Group]:
    """All declarations, which imports all commands: for completion scripts and the reference."""
    return {noun: load(noun) for noun in NOUNS}
