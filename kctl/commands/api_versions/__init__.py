"""`kctl api-versions`: show the API versions that the brokers support."""
