"""The report as a single HTML file that opens from disk and works offline."""

from smoothcert.report.page.heatmap import corruption_maps
from smoothcert.report.page.image_sheet import Pictures
from smoothcert.report.page.render import render_page

__all__ = ["Pictures", "corruption_maps", "render_page"]
