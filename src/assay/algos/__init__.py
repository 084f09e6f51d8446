"""Algorithms: credit + ratio + aggregation + KL, one file a method."""
