"""The loophole collection: for each, a weak reward, the reward that closes the hole, the truth, and an exploit."""
