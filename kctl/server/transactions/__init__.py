"""Transactions: writes to many partitions, and commits of offsets, that become visible together or not at all.

Reading order: transaction (the theory and the data), states, events, actions, step (the rules), snapshot, records and
loading (what `__transaction_state` holds); then what has a clock, a log and tasks: coordinator (what producers may
ask), runner (performs what the rules decide), producer_id_allocations, markers (telling the partitions) and
partition_markers (a partition's leader is told).
"""
