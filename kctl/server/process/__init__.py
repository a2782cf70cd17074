"""A broker as a process on a machine."""
