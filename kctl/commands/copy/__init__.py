"""`kctl copy`: copy records of a topic to another topic."""
