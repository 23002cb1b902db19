"""Numbers printed in papers, as data with their sources: one YAML file next to this module for each table."""
