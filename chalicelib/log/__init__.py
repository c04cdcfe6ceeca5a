"""The log of a queue: segments of entries, their payloads, reading and appending."""
