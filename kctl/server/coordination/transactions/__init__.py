"""Transactions: writes to many partitions, and offset commits, that become visible together or not at all.

Reading order: transaction (theory and data), states, events, actions, step (the rules), snapshot, records and
transaction_loading (the contents of `__transaction_state`); then the modules with a clock, a log and tasks: coordinator
(the API for handlers), runner (performs the actions of the rules), producer_id_allocations, markers (sends markers to
partition leaders) and partition_markers (writes markers to partitions).
"""
