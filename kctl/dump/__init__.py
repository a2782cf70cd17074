"""Reads the files of logs offline: `kctl dump-log`."""
