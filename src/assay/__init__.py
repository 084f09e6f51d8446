"""Assay: post-train language models on rewards, and measure how much of the reward is gold.

The package root loads nothing heavy: import the layer you need (``assay.maths``, ``assay.audit``, ...).
"""

__version__ = "0.1.0"
