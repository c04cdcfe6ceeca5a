"""Push: the queue calls the consumer of a group, a webhook or a function, and settles messages by its response."""
