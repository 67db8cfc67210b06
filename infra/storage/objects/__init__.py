"""Object stores: reads, writes, conditional writes and retries of requests."""
