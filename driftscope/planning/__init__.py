"""What to serve: how many tokens to draft a round, and whether at all, from one run and a model of what passes cost."""
