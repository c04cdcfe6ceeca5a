"""The ground floor: errors, limits, fields, clock and randomness, messages, the deadline of a call."""
