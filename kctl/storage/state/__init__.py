"""What a log knows beside its records: producers, leader epochs, checkpoints."""
