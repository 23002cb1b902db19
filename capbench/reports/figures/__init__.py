"""Figures from results as PNG, SVG or PDF; matplotlib is imported inside the functions that draw."""
