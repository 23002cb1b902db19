"""Foundations of the package, independent of captions: errors, records, options, files, caches."""
