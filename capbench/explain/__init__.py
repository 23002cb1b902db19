"""Why a metric gave captions their scores: what TIGEr and REO tell, and how every explanation is drawn."""
