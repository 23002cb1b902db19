"""Explanations of scores as HTML pages, pictures and text; nothing is computed here."""
