"""The dual encoder: region features and captions as vectors in one space, small enough to be trained here."""
