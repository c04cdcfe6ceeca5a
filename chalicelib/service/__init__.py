"""What the queue does: producing, consuming, settling, looking up, administering. Knows no HTTP and no DynamoDB."""
