"""Push: the queue calls the consumer of a group, a webhook or a function, and settles by its answer."""
