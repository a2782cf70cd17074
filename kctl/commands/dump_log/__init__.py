"""`kctl dump-log`: show the contents of log and index files, and rebuild indexes."""
