"""FAIEr: its network, what it reads of captions and images, and its files."""
