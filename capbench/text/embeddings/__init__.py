"""Word vectors: their files, and looking words up in them."""
