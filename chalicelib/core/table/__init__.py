"""The table: its keys, the vocabulary of writes, the size of items."""
