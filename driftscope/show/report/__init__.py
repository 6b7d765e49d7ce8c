"""`driftscope report`: runs as one HTML file that opens offline, and every chart as an image."""

from driftscope.show.report.write import render_report, write_images, write_report

__all__ = ["render_report", "write_images", "write_report"]
