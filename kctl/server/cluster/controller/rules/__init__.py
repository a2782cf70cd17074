"""The rules of `step`, one module per subject.  Pure."""
