"""Where a group stands in a queue: cursors, leases, retries, receipts, progress, consumers of broadcast groups."""
