"""The Streamlit pages, started by `driftscope app`."""
