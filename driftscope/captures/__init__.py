"""What a target said and its states: recorded once, cached, and read back."""
