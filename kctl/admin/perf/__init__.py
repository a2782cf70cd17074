"""Measures throughput and latency of a cluster, with librdkafka or with kctl's own client."""
