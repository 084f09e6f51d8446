"""Models: the tiny decoder, Hugging Face models, value and reward heads, checkpoints."""
