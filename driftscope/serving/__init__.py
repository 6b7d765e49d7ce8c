"""A serving engine against the walk: what its counters say of how it runs a drafter, golden files, and a card of a run."""
