"""What the group coordinator and the transaction coordinator have alike; each has a package of its own beside this one.

Both keep their state in an internal topic, serve what lives in the partitions of it that this broker leads, write each
change to the log before they answer, and read all of it back when they take a partition over.

Reading order: partitions (whose is which id, and when), replay and loading (how a partition is read back), ports,
replies, appending and append_errors (what goes out and what comes back), rounds.
"""
