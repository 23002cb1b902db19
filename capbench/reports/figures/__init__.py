"""Figures from results, as PNG, SVG or PDF; nothing is computed here.

Every figure is a :class:`matplotlib.figure.Figure` that :func:`capbench.reports.figures.style.save` writes; matplotlib
is imported inside the functions that draw.
"""
