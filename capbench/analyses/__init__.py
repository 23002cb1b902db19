"""Analyses beside studies: comparisons, power, curves over references, score groups, examples, all protocols."""
