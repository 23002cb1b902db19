"""Why a metric gave its scores, as a page and as a picture: drawn from what it says, never computed here."""
