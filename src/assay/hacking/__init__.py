"""Hacking: one function from matched evaluations to the measures and the verdict."""
