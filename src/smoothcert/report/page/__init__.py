"""The report as one page that opens from disk: everything it needs is inside it."""

from smoothcert.report.page.gallery import Pictures
from smoothcert.report.page.render import render_page

__all__ = ["Pictures", "render_page"]
