"""Region features of images: the store, its records, importers, detectors and extraction."""
