"""Results as tables (terminal, Markdown, LaTeX, CSV, HTML), figures, reports and pages of explanations."""
