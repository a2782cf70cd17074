"""Samples of a cluster, and its activity between them: `kctl top`."""
