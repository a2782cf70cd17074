"""Consumer groups: how their members share partitions, and the offsets that they commit.

Reading order: group (theory and data), events, actions; the rules (step, joining, rebalance, liveness, committing),
offsets and records (the contents of `__consumer_offsets`); then the modules with a clock, a log and timers: coordinator
(the API for handlers), runner (performs the actions of the rules), offsets_writer.
"""
