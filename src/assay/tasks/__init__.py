"""Tasks: prompts with a reward and a truth, versioned and deterministic by seed."""
