"""Scheduled maintenance: what pops do anyway, for queues that nobody is polling, and what only saves cost."""
