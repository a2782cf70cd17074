"""The controller: state, events and actions; `step` and its rules (leadership, reassignments, changes,
topic_deletion, membership); runner does the IO.
"""
