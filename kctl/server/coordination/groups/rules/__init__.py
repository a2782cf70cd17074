"""The rules of `step` for groups, one module per subject.  Pure."""
