"""One module per API, named as in Kafka: its request, its response and their nested structs."""
