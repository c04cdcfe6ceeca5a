"""Pop, and what settles its messages."""
