"""Real concurrency: instances in threads and processes, an emulator behind a failing network, and the checker of
`tests.simulation` on their history.

The simulation finds more, and replays it; this shows how the product, boto3 and a server behave together."""
