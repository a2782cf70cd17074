"""Compares the files of an export with the topic, record by record, in bounded memory.

The offsets of all partitions are divided into rounds.  In each round the `ledger` has one slot per offset: the records
of the topic are read once and entered as hashes (`record_hash`), then the rows of the `data_files` whose statistics
overlap.  The `verifier` performs the rounds, `tally` adds them up, and `request` is the entry for commands.
"""
