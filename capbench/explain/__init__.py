"""Why a metric gave a caption its score: what is shown, as a page and as a picture."""
