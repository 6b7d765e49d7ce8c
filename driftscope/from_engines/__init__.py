"""Dumps of engines and trainers as captures."""
