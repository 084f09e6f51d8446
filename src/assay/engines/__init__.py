"""Engines: sampling completions, locally or through vLLM."""
