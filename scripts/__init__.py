"""Scripts beside the package: they make what is committed, and measure."""
