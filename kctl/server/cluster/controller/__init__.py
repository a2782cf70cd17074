"""The controller: state, events and actions; elections, partition_states, replica_states; step; runner does the IO."""
