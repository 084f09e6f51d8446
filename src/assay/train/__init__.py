"""Training: the loop and resume; it does not know an algorithm by name."""
