"""Training of the dual encoder: settings and task."""
