"""The texts of Apache Kafka's own tools, byte for byte.  Pure."""
