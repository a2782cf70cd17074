"""The logs of the partitions: loading, cleaning, idle producers, moves between log directories."""
