"""Detectors: from an image to boxes and their features."""
