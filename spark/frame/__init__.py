"""The frame of every job: its arguments, the session, the tables."""
