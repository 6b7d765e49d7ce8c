"""For every test."""

pytest_plugins = ["pytester"]
