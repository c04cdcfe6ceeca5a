"""Unpacks the messages of entries, many at once."""
