"""The partition log on disk, in Apache Kafka's file formats.  Synchronous; all file access goes through files.Files.

Reading order: files and names; config; segments/ (index_file, segment, segments); state/ (producers, leader epochs,
checkpoints); log/ (one log: appends, look-ups, flushes); directories/; recovery/; log_manager (all logs of a broker);
cleaning/.
"""
