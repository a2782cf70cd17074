"""What a request needs on its way through a broker: context, times, quotas, delayed operations, work in threads."""
