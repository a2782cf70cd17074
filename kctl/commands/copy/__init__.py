"""`kctl copy`: copy records of topics to other topics."""
