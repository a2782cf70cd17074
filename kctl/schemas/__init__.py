"""A schema registry with Confluent's REST API: rules of requests, formats of schemas, and the server."""
