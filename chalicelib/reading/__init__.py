"""Looking messages up without leasing them."""
