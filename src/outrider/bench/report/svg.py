"""A matplotlib figure as a small inline SVG: text stays text, colours become CSS variables, ids are its own.

Text stays text (not outlines): a report of a hundred panels is a third of the size, can be searched and copied, and takes the
page's font. Nothing of the time, the machine or matplotlib's version gets in, so the same document gives the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from outrider.bench.report.look import GRID, INKS, MUTED, PAPER, TEXT

_VARIABLES = {ink.light: f"var(--{ink.name})" for ink in INKS}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "outrider",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.labelcolor": MUTED.light,
    "axes.edgecolor": MUTED.light,
    "axes.linewidth": 0.7,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID.light,
    "grid.linewidth": 0.7,
    "text.color": TEXT.light,
    "xtick.color": MUTED.light,
    "ytick.color": MUTED.light,
    "xtick.bottom": False,
    "ytick.left": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "lines.markeredgecolor": PAPER.light,
    "lines.markeredgewidth": 0.6,
    "path.simplify": True,
    "path.simplify_threshold": 0.2,
}


@contextmanager
def _quiet() -> Iterator[None]:
    """Our style; a name in a script that the metrics font lacks is the reader's font's business, not a warning."""
    with warnings.catch_warnings(), mpl.rc_context(_STYLE):
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def draw(size: tuple[float, float], paint: Callable[[Axes], None]) -> str:
    """matplotlib's SVG of one panel; `size` in points (a CSS pixel of the page, more or less)."""
    return draw_figure(size, lambda figure: paint(figure.add_subplot()))


def draw_figure(size: tuple[float, float], paint: Callable[[Figure], None]) -> str:
    """matplotlib's SVG of a figure of any number of panels."""
    with _quiet():
        layout = ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03)
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout=layout)
        FigureCanvasSVG(figure)
        paint(figure)
        out = io.BytesIO()
        empty = {"Creator": None, "Date": None, "Format": None, "Type": None}
        figure.savefig(out, format="svg", transparent=True, metadata=empty)
    return out.getvalue().decode("utf-8")


def inline(svg: str, name: str, title: str, description: str) -> str:
    """The SVG to put into a page: `name` makes its ids its own, `title` and `description` are read aloud."""
    body = _tags(svg[svg.index("<svg") :], name)
    view = re.search(r'viewBox="([^"]*)"', body)
    inner = body[body.index(">") + 1 :].strip()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view.group(1) if view else "0 0 1 1"}" role="img" '
        f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>{inner}'
    )


def _tags(svg: str, name: str) -> str:
    """Mend the tags alone: what stands between them is text of the document, and stays as it is."""
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    tags = "".join(re.findall(r"<[^>]+>", svg))
    used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', tags)
    ids = {
        old: f"{name}-{place}" for place, old in enumerate(dict.fromkeys(one or other for one, other in used))
    }
    svg = re.sub(r"<[^>]+>", lambda tag: _tag(tag.group(), ids), svg)
    svg = re.sub(r">\s*\n\s*<", "><", svg)
    svg = re.sub(r'<path d="[^"]*" style="fill:none"/>|<defs></defs>', "", svg)
    while "<g></g>" in svg:
        svg = svg.replace("<g></g>", "")
    for _ in range(3):
        svg = re.sub(r"<g>(<(?:use|path)[^>]*/>|<text[^>]*>[^<]*</text>)</g>", r"\1", svg)
    return svg


def _tag(tag: str, ids: Mapping[str, str]) -> str:
    tag = re.sub(r' id="([^"]+)"', lambda at: f' id="{ids[at[1]]}"' if at[1] in ids else "", tag)
    tag = re.sub(r'xlink:href="#([^"]+)"', lambda at: f'href="#{ids[at[1]]}"', tag)
    tag = re.sub(r"url\(#([^)]+)\)", lambda at: f"url(#{ids[at[1]]})", tag)
    tag = re.sub(r' transform="rotate\(-0 [^"]*"', "", tag)
    tag = re.sub(r' (d|x|y|x1|y1|width|height|transform)="([^"]*)"', _coordinates, tag)
    return re.sub(r' style="([^"]*)"', lambda at: _style(at[1]), tag)


def _coordinates(attribute: re.Match[str]) -> str:
    """A tenth of a pixel is enough; a line's points follow its first M without a letter each."""
    rounded = re.sub(r"-?\d+\.\d+", lambda at: f"{float(at[0]):.1f}".removesuffix(".0"), attribute[2])
    joined = " ".join(rounded.split())
    if attribute[1] == "d":
        joined = re.sub(r" ?([MLCQz]) ?", r"\1", joined)
        if not re.search("[CQ]", joined):
            joined = re.sub(r"(M[^A-Za-z]*)L", r"\1 ", joined).replace("L", " ")
    return f' {attribute[1]}="{joined}"'


def _style(style: str) -> str:
    kept = []
    for part in style.split(";"):
        key, _, value = part.strip().partition(": ")
        if not key or key in {"font-family", "stroke-linejoin", "stroke-linecap"}:
            continue
        kept += _font(value) if key == "font" else [f"{key}:{_VARIABLES.get(value, value)}"]
    return f' style="{";".join(kept)}"' if kept else ""


def _font(value: str) -> list[str]:
    """``bold 9.5px 'DejaVu Sans', …`` → its weight and size; the page has the family."""
    size = re.search(r"[\d.]+px", value)
    weight = re.search(r"\b(bold|[5-9]00)\b", value[: size.start()] if size else value)
    return [*([f"font-weight:{weight[0]}"] if weight else []), *([f"font-size:{size[0]}"] if size else [])]


def classes(svgs: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The same pictures with their style attributes as classes, and the rules: many pictures repeat few styles."""
    rules: dict[str, str] = {}

    def name(at: re.Match[str]) -> str:
        return f' class="{rules.setdefault(at[1], f"p{len(rules)}")}"'

    short = {
        key: re.sub(r"<[^>]+>", lambda tag: re.sub(r' style="([^"]*)"', name, tag[0]), svg)
        for key, svg in svgs.items()
    }
    return short, "".join(f".{name}{{{style}}}" for style, name in rules.items())
