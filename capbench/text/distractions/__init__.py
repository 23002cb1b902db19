"""Captions made wrong by their person or their scene, by rules over a lexicon."""
