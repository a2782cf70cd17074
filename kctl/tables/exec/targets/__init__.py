"""The files that tasks write, and the folder or object store that they are in."""
