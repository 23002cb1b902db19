"""Tables from results: terminal, Markdown, LaTeX, CSV. Nothing is computed here but differences."""
