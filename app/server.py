"""What `driftscope app` hands to Streamlit: the pages, behind the list of allowed hosts."""

from __future__ import annotations

from pathlib import Path

from starlette.middleware import Middleware
from streamlit.starlette import App

from driftscope.app.hosts import AllowedHosts

app = App(Path(__file__).with_name("main.py"), middleware=[Middleware(AllowedHosts)])
