"""Real concurrency: instances in threads and processes, an emulator behind a network that fails, and the checker of
`tests.simulation` on what they did. The simulation finds more, and replays it; this finds what no simulation shows: how
the product, boto3 and a server behave together."""
