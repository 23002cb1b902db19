"""What everything else stands on, and what knows nothing of captions: errors, records, options, files, caches."""
