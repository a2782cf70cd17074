"""Prints what Apache Kafka's own tools print, byte for byte: the rendering behind --compat."""
