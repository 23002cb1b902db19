"""Training of SCAN: settings and task."""
