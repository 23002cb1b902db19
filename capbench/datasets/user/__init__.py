"""Judgements and captions of a user's own files."""
