"""Opening logs at start, whatever state they were left in."""
