"""The store in memory, for tests and benchmarks: every verb of the port, metered as DynamoDB would bill it."""
