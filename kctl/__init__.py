"""kctl: a command-line suite for Apache-Kafka-compatible clusters, with a broker of its own.

Reading order: model, errors, environment; protocol and records (what travels and what is stored); storage; zookeeper;
client and admin; server; commands.  ARCHITECTURE.md is the map.
"""

__version__ = "0.1.0"
