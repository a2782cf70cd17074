"""What the benchmarks of a running broker share: `report` (medians, one line, one JSON object), `subject` (the broker
that is measured, and what it costs), `librdkafka` (the client that drives it)."""
