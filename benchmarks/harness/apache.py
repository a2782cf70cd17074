"""How Apache Kafka is run when it is measured, as opposed to tested."""

from __future__ import annotations

from tests.peers.java import UTF_8

JVM_FLAGS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", *UTF_8)
"""All compiler stages, and the memory and collector of Kafka's own start script."""
