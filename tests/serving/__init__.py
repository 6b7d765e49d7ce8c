"""An engine against the walk."""
