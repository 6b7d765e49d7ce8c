"""Files of a checkpoint, and switches with where their values come from."""
