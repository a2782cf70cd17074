"""The state that a cluster should have: documents, differences, changes."""
