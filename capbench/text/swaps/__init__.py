"""Captions with a word exchanged: an object, an action or a property."""
