"""Avro, JSON Schema and Protobuf: canonical texts, and which changes of a schema are compatible."""
