"""The service against a plain sequential model of what the contract says, step by step."""
