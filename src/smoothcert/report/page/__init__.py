"""The report as one page that opens from disk: everything it needs is inside it."""

from smoothcert.report.page.gallery import Pictures
from smoothcert.report.page.heatmap import corruption_maps
from smoothcert.report.page.render import render_page

__all__ = ["Pictures", "corruption_maps", "render_page"]
