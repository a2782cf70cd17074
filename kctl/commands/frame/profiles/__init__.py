"""Profiles of a user, and the files with properties and secrets that a command line names."""
