"""Schema registries with the HTTP API of Confluent's: schemas by id or subject, and records in its wire format."""
