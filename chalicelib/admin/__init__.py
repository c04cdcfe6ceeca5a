"""Making, changing and deleting topics and groups."""
