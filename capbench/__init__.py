"""capbench: which image-caption metric agrees with people, by how much, and is the difference real?"""

__version__ = "0.1.0"

__all__ = ["__version__"]
