"""A table of text as Markdown, LaTeX (booktabs) or HTML."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

LATEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {sign: "\\" + sign for sign in "&%$#_"} | {"<": "$<$", ">": "$>$", "±": r"$\pm$"}
BETTER, WORSE = "▲", "▼"  # after a difference that is one, by Holm's p
LATEX |= {BETTER: r"$\uparrow$", WORSE: r"$\downarrow$", "·": r"$\cdot$"}


@dataclass(frozen=True, kw_only=True)
class Text:
    """A table of strings with its title above and its notes below. A cell, and a heading, may have several lines."""

    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    cells: list[tuple[str, str | None]] = field(default_factory=list)  # of each row: its cell's id, its baseline's


def markdown(table: Text) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", r"\|").replace("\n", "<br>") for cell in cells) + " |"

    rule = "| " + " | ".join(["---"] + ["---:"] * (len(table.head) - 1)) + " |"
    notes = [f"- {note}" for note in table.notes]
    return "\n".join([f"### {table.title}", "", line(table.head), rule, *map(line, table.rows), "", *notes, ""])


def latex(table: Text) -> str:
    signs, marks = str.maketrans(LATEX), str.maketrans({mark: LATEX[mark] for mark in (BETTER, WORSE)})
    rows = (table.head, *table.rows)
    head, *lines = (" & ".join(_stacked(cell.translate(signs)) for cell in row) + r" \\" for row in rows)
    return "\n".join(
        [
            *(f"% {note.translate(marks)}" for note in table.notes),
            r"\begin{table}",
            rf"\caption{{{table.title.translate(signs)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
            r"\toprule",
            head,
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _stacked(cell: str) -> str:
    """A cell of several lines, the first of which stands on the line of the row."""
    lines = cell.split("\n")
    return cell if len(lines) == 1 else r"\begin{tabular}[t]{@{}r@{}}" + r" \\ ".join(lines) + r"\end{tabular}"


def page(table: Text) -> str:
    def row(cells: list[str], tag: str) -> str:
        return (
            "<tr>" + "".join(f"<{tag}>{html.escape(cell).replace(chr(10), '<br>')}</{tag}>" for cell in cells) + "</tr>"
        )

    notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes)
    body = "".join(row(cells, "td") for cells in table.rows)
    head = f"<caption>{html.escape(table.title)}</caption><thead>{row(table.head, 'th')}</thead>"
    return f"<table>{head}<tbody>{body}</tbody></table>\n<ul>{notes}</ul>\n"


FORMATS = {"md": markdown, "latex": latex, "html": page}
