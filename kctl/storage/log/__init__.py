"""The log of one partition: appends, look-ups, flushes, and who is notified of changes."""
