"""What everything stands on: errors, limits, fields, time and chance, a message, the deadline of a call."""
