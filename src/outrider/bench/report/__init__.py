"""The report of a bench run: `report.html` and `report.md`, both from `run.json` alone.

`content` is what both say, `compose` its order, `findings` and `background` its sections, `pictures` the panels. Importing this
package imports Jinja2 and matplotlib (the extra ``bench``): do it inside a command.
"""

from outrider.bench.report.html import render_html
from outrider.bench.report.markdown import render_markdown
from outrider.bench.report.write import write_report

__all__ = ["render_html", "render_markdown", "write_report"]
