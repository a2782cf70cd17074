"""Regular expressions of RE2 for names of topics, in time that is linear in the length of the name.

Python's `re` can take exponential time for an expression that a client chooses.  `syntax` parses, `automaton` matches.
"""
