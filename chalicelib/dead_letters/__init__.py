"""Messages that a group has given up: burying, listing, redriving, purging."""
