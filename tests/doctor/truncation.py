"""Samplers that keep the most likely tokens only, by one of three rules."""

import numpy as np


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def truncated(logits, kind, value, fill=-1e9):
    """The logits with ``fill`` at what ``top_p``, ``top_k`` or ``min_p`` drops, (..., V)."""
    order = np.argsort(-logits, -1)
    mass = np.take_along_axis(np.exp(log_softmax(logits)), order, -1)
    kept = {
        "top_p": np.cumsum(mass, -1) - mass < value,
        "top_k": np.broadcast_to(np.arange(mass.shape[-1]) < value, mass.shape),
        "min_p": mass >= value * mass[..., :1],
    }[kind]
    mask = np.zeros(logits.shape, bool)
    np.put_along_axis(mask, order, kept, -1)
    return np.where(mask, logits, fill)
