"""The controller: state, events and actions; `step` and its rules; the runner does the IO, with channels and znodes."""
