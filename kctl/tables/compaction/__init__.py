"""Merges small files of an export into large ones.

`bins` decides which files are merged, `merging` writes one merged file, `folder` and `table_files` publish them,
and `request` is the entry for commands.
"""
