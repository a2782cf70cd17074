"""Transactions: writes to many partitions, and offset commits, that become visible together or not at all.

Reading order: transaction (theory and data), events (with states and actions), step (the rules), records (the contents
of `__transaction_state`); then the modules with a clock, a log and tasks: coordinator (the API for handlers), runner
(performs the actions of the rules), markers.
"""
