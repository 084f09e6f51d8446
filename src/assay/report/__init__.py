"""Reports: the one place that draws."""
