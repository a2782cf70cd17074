"""A Kafka client of our own, for the commands, the exporter and connections between brokers.

Reading order: settings; transport (the port: connections, waiting, doing things at once) and its two implementations,
asyncio_transport and blocking_transport; budget (the deadline of a command); framing and versions (what a connection
does, without IO); retrying; cluster (routing); leaders (requests to partition leaders and coordinators);
fetching; consumer; producer.

Everything is written as coroutines over the transport.  On the blocking transport they never suspend, so `run_blocking`
runs them without an event loop: that is what one-shot commands and Spark's workers use.
"""
