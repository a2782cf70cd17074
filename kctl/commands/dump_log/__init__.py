"""`kctl dump-log`: show what log and index files hold, and repair indexes."""
