"""kctl: command-line tools for Apache-Kafka-compatible clusters, and a broker.

Reading order: model, errors, environment; protocol and records (wire and storage formats); storage; zookeeper;
client and admin; server; commands.  See ARCHITECTURE.md.
"""

__version__ = "1.0.0"
