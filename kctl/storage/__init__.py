"""The partition log on disk, in Apache Kafka's own formats.  Synchronous; all file access goes through files.Files.

Reading order: files and names; config; offset_index, time_index, transaction_index; segment; producer_state,
leader_epochs; checkpoints; lookup, retention (rules); log; recovery; log_directory, log_directories, finding,
future_logs and log_manager; cleaner; dump.
"""
