"""The partition log on disk, in Apache Kafka's file formats.  Synchronous; all file access goes through files.Files.

Reading order: files and names; config; offset_index, time_index, transaction_index, segment_indexes; segment, segments;
producer_state, leader_epochs; checkpoints, metadata_files; appending, rolling, retention, flushing, lookup (rules and
look-ups); local_log; log; recovery; log_directory, log_directories, finding, future_logs, offset_checkpoints,
log_loading, closing and log_manager; compaction, cleaning, cleaner; dump.
"""
