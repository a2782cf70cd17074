"""Regular expressions of RE2, in time that is linear in the length of the name that is matched.

Python's `re` can take exponential time for an expression that a client chooses.  `syntax` parses, `automaton` matches.
"""
