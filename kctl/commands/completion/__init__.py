"""`kctl completion`, and the names that its scripts complete."""

PROGRAM_WORD = "__names"
"""The first word of the command line by which a completion script requests names."""
