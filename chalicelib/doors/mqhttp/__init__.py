"""The door for clients of MQ over HTTP: its wire, its calls and its errors, over the service's own operations. It keeps
nothing. Imported by its first request."""
