"""Clusters: health, features, log directories, maintenance, rolling restarts."""
