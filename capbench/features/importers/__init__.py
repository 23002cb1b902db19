"""Import of region features that other programs computed, from the files in which they are published."""

from capbench.features.importers.importing import FORMATS, Imported, import_features

__all__ = ["FORMATS", "Imported", "import_features"]
