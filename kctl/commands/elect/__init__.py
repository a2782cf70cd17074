"""`kctl elect`: elect leaders of partitions now."""
