"""One file a layout of a checkpoint, and which layouts there are."""
