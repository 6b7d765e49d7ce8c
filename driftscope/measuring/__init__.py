"""Start a run, estimate it, and run the probes over the prompts."""
