"""Which records, columns and partitions an export has."""
