"""Rewards: readable functions of a completion and its task, running them, and adapters for other trainers."""
