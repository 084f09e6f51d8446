"""Maths: advantages, log-probs, KL, policy, preference and value losses, returns, as pure functions."""
