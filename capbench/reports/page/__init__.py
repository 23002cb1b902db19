"""Results as one interactive HTML file that works without a network (``capbench figure report``)."""

from capbench.reports.page.elements import ReportSource, read_source
from capbench.reports.page.page import report_page

__all__ = ["ReportSource", "read_source", "report_page"]
