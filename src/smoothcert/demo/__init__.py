"""The demo page "Attack this digit": certify a digit in the browser and try to fool the vote."""

from __future__ import annotations

from smoothcert.demo.page import render_demo

__all__ = ["render_demo"]
