"""The event loop of a broker: tasks, slices of long work, timers, and what holds it."""
