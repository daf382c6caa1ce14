"""Draws ``figures.json`` as bars: ``python -m tests.benchmarks.chart > docs/speed.svg``."""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).with_name("figures.json")
WIDTH, LABELS, RIGHT = 760, 290, 50
"""Pixels: of the picture, of the labels on the left, and of the numbers on the right."""
TOP, LINE, BAR = 56, 24, 14
TITLE = """Speed against Spark's format("kafka"): 2 = twice as many records a second"""
TICKS = (0.5, 1, 2, 4, 8, 16)
FASTER, SLOWER, INK, PALE = "#1f77b4", "#c44e52", "#24292f", "#d0d7de"


def main() -> None:
    print(svg(json.loads(FIGURES.read_text(encoding="utf-8"))), end="")


def svg(figures: dict[str, Any]) -> str:
    """A picture on white, for light and dark pages; right of 1 is faster, on a logarithmic axis."""
    lines = sum(1 + len(group["bars"]) for group in figures["groups"])
    bottom = TOP + lines * LINE
    height = bottom + 52
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' font-family="Helvetica, Arial, sans-serif" font-size="13" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fff"/>',
        _text(20, 28, TITLE, bold=True),
    ]
    for tick in TICKS:
        width = 2 if tick == 1 else 1
        parts.append(
            f'<line x1="{_x(tick):.1f}" x2="{_x(tick):.1f}" y1="{TOP - 8}" y2="{bottom + 4}"'
            f' stroke="{INK if tick == 1 else PALE}" stroke-width="{width}"/>'
        )
        parts.append(_text(_x(tick), bottom + 20, f"{tick:g}", anchor="middle"))
    y = TOP
    for group in figures["groups"]:
        parts.append(_text(20, y + 12, group["title"], bold=True))
        y += LINE
        for bar in group["bars"]:
            parts += _bar(y, bar["label"], bar["ratio"])
            y += LINE
    parts.append(_text(20, height - 12, f"{figures['measured']}, {figures['on']}", size=11))
    return "\n".join([*parts, "</svg>\n"])


def _bar(y: int, label: str, ratio: float) -> list[str]:
    left, right = sorted((_x(1), _x(ratio)))
    colour = FASTER if ratio >= 1 else SLOWER
    return [
        _text(LABELS - 8, y + 12, label, anchor="end"),
        f'<rect x="{left:.1f}" y="{y}" width="{right - left:.1f}" height="{BAR}" fill="{colour}"/>',
        _text(max(right, _x(1)) + 6, y + 12, f"{ratio:g}"),
    ]


def _x(ratio: float) -> float:
    least, most = math.log2(TICKS[0]), math.log2(TICKS[-1])
    return LABELS + (math.log2(ratio) - least) / (most - least) * (WIDTH - RIGHT - LABELS)


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, size: int = 13) -> str:
    font = f'font-size="{size}" font-weight="{"bold" if bold else "normal"}"'
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" {font}>{escape(text)}</text>'


if __name__ == "__main__":
    main()
