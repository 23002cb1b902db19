"""Training of the dual encoder: settings, task, recall."""
