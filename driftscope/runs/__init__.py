"""The run folder: its schema, writer and reader, and the rows and summary of what it holds."""
