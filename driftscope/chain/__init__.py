"""The one idea: every anchor of a text times every speculation step, from one prefix pass."""
