"""The rules of lag, which the broker, the commands and the exporter share."""
