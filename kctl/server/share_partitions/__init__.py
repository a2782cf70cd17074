"""Share-partitions (KIP-932): the records of a partition that its leader hands out to the members of a share group.

Reading order: values (what is stored, and the port to the share coordinator), partition (the state machine, pure),
acknowledging (the checks of acknowledgements), sessions (what a member fetches), then manager, which reads the log,
writes the state and runs the timers.
"""
