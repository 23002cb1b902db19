"""Region features that others computed, read from the files that they are published in."""

from capbench.features.importers.importing import FORMATS, Imported, import_features

__all__ = ["FORMATS", "Imported", "import_features"]
