"""The engine: topics, groups and their messages over one table. It names no protocol."""
