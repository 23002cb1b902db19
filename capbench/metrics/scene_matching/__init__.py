"""What FAIEr's scores are made of: networks beside a feature store, and why a caption got its score."""
