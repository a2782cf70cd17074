"""kctl beside Apache Kafka: all rows of one table in turns, `./dev bench --beside apache`."""
