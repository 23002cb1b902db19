"""Training of LEIC: settings, people's and ruined captions, the network."""
