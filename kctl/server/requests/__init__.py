"""From a frame to a handler and back: context, dispatch; timing_wheel, timer, purgatory for delayed operations."""
