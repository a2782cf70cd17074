"""The current state by key: one row for each key of a topic, of its last record (kctl export --mode upsert).

Reading order: changes (the last change of each key in a batch), buckets (which rows are in a file together), rows
(changes applied to the rows of a bucket), gathering (the changes of a batch in groups that memory has room for), state
(the files of a batch, of which a commit replaces others).  docs/decisions/current-state-tables.md has the reasons.
"""
