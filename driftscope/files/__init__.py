"""Readers of files that may lie: JSON, Parquet, fields of free form."""
