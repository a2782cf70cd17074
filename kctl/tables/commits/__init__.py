"""The files of an export, and the log of its commits."""
