"""The door for clients of Amazon SQS: its wire, its actions and its errors, over the service's own operations. It keeps
nothing but the records of its queues. Imported by its first request."""
