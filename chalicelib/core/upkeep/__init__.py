"""Scheduled maintenance: the work of pops, for queues that no consumer polls, and clean-up that saves cost."""
