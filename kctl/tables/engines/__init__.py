"""What runs the tasks of a plan: processes of this machine, or Spark."""
