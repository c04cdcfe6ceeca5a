"""Messages that wait for their time, and the chain of decisions that delivers or cancels them."""
