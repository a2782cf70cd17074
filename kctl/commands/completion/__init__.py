"""`kctl completion`, and what its scripts ask for at each TAB: `kctl __complete SHELL ...`."""

PROGRAM_WORD = "__complete"
"""The first word of the command line by which a completion script asks."""
