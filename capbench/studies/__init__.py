"""Studies: YAML → plan → run → results, and the published numbers to compare with."""
