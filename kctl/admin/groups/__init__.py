"""Groups: members, lag, offsets, history."""
