"""Options and arguments: their types, their values, and the words that a shell completes."""
