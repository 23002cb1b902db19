"""Detectors: images to boxes and region features."""
