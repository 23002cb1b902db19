"""Texts: PTB tokenisation, n-grams, vocabularies."""
