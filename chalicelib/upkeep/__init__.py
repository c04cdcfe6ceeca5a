"""What runs on a schedule."""
