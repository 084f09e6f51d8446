"""Statistics: intervals, paired comparison, pass@k, change points, over-optimisation fits."""
