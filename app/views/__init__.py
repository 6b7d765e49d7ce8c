"""One page a file; Streamlit runs the file, and an import of it does nothing."""
