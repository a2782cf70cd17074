"""`kctl export`: export topics to Parquet."""
