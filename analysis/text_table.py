"""A table of texts, written as Markdown, LaTeX (booktabs) or HTML, or printed in a terminal of any width."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass, field, replace
from html import escape

from rich import box
from rich.cells import cell_len
from rich.table import Table as Grid
from rich.text import Text as Styled

from core.console import Console
from core.escaping import markdown, printable

BETTER, WORSE = "▲", "▼"  # after a difference that is one, by Holm's p
LATEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {sign: "\\" + sign for sign in "&%$#_"} | {"<": "$<$", ">": "$>$", "±": r"$\pm$"}
LATEX |= {BETTER: r"$\uparrow$", WORSE: r"$\downarrow$", "·": r"$\cdot$"}

# In a terminal
PROSE = 32  # a column with longer lines is sentences, which may be wrapped; others are names and numbers, which are not
LEAST = 18  # characters that a wrapped column has at least
WRAP = {"break_on_hyphens": False}
BETWEEN = 3  # characters between two columns


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of strings with its title above and its notes below. An entry, and a heading, may have several lines.

    cells   of each row: the id of the cell that it shows, and that of the cell's baseline
    """

    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    cells: list[tuple[str, str | None]] = field(default_factory=list)


def to_markdown(table: TextTable) -> str:
    def line(entries: list[str]) -> str:
        return "| " + " | ".join(markdown(entry).replace("|", r"\|").replace("\n", "<br>") for entry in entries) + " |"

    rule = "| " + " | ".join(["---"] + ["---:"] * (len(table.head) - 1)) + " |"
    notes = [f"- {_one_line(markdown(note))}" for note in table.notes]
    return "\n".join(
        [f"### {_one_line(markdown(table.title))}", "", line(table.head), rule, *map(line, table.rows), "", *notes, ""]
    )


def to_latex(table: TextTable) -> str:
    # tabulate's LaTeX breaks a row where an entry has several lines, and lets \\ take the [ of an interval after it.
    signs, marks = str.maketrans(LATEX), str.maketrans({mark: LATEX[mark] for mark in (BETTER, WORSE)})
    rows = (table.head, *table.rows)
    head, *lines = (" & ".join(_stacked(printable(each).translate(signs)) for each in row) + r" \\" for row in rows)
    return "\n".join(
        [
            *(f"% {_one_line(printable(note)).translate(marks)}" for note in table.notes),
            r"\begin{table}",
            rf"\caption{{{_one_line(printable(table.title)).translate(signs)}}}",
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


def _stacked(entry: str) -> str:
    """An entry of several lines, the first of which stands on the line of the row."""
    lines = ["{}" * line.lstrip().startswith(("[", "*")) + line for line in entry.split("\n")]  # else \\ takes it
    return lines[0] if len(lines) == 1 else r"\begin{tabular}[t]{@{}r@{}}" + r" \\ ".join(lines) + r"\end{tabular}"


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def to_html(table: TextTable) -> str:
    def row(entries: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(each).replace(chr(10), '<br>')}</{tag}>" for each in entries) + "</tr>"

    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    body = "".join(row(entries, "td") for entries in table.rows)
    head = f"<caption>{escape(table.title)}</caption><thead>{row(table.head, 'th')}</thead>"
    return f"<table>{head}<tbody>{body}</tbody></table>\n<ul>{notes}</ul>\n"


FORMATS = {"md": to_markdown, "latex": to_latex, "html": to_html}


def print_table(table: TextTable) -> None:
    """Aligned in a terminal, Markdown elsewhere."""
    if sys.stdout.isatty():
        show(Console(), table)
    else:
        print(to_markdown(table), end="")


def show(console: Console, table: TextTable) -> None:
    """Print a table with its title and notes, aligned. Where it is wider than the window, in several blocks of columns.

    Nothing is cut: an entry that does not fit is wrapped, a column that does not fit stands in the next block.
    """
    table = replace(
        table,
        title=clean(table.title),
        head=list(map(clean, table.head)),
        rows=[list(map(clean, row)) for row in table.rows],
        notes=list(map(clean, table.notes)),
    )
    if table.title:
        console.print(Styled(table.title, "bold"), soft_wrap=not console.is_terminal)
    for places in _blocks(table, console.width):
        made = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for place in places:
            prose = place == 0 or _longest_line(table, place) > PROSE
            how = {"overflow": "fold", "no_wrap": not prose, "min_width": min(LEAST, _natural(table, place))}
            made.add_column(
                _wrapped(table.head[place], _natural(table, place)), justify="left" if prose else "right", **how
            )
        for row in table.rows:
            made.add_row(*(_styled(row[place]) for place in places))
        console.print(made)
        console.print()
    for note in table.notes:
        if "python " in note:  # a command, which must stay one line to be copied
            console.print(Styled(f"- {note}"), soft_wrap=True)
        else:
            console.print(Styled(textwrap.fill(f"- {note}", console.width, subsequent_indent="  ", **WRAP)))
    if table.notes:
        console.print()


def clean(text: str) -> str:
    """Text of whatever origin as a terminal may be given it, and as wide as it will be there."""
    return printable(str(text).replace("\r\n", "\n"))


def _blocks(table: TextTable, width: int) -> list[list[int]]:
    """The columns of each block. The first column begins every block."""
    least = [_natural(table, place) for place in range(len(table.head))]
    least = [min(least[0], max(LEAST, width // 3)), *(each if each <= PROSE else LEAST for each in least[1:])]
    blocks = [[0]]
    for place in range(1, len(least)):
        taken = sum(least[n] + BETWEEN for n in blocks[-1])
        if len(blocks[-1]) > 1 and taken + least[place] > width:
            blocks.append([0])
        blocks[-1].append(place)
    return blocks


def _natural(table: TextTable, place: int) -> int:
    """The width of a column in which no entry is wrapped; its heading may be, between words."""
    head, *below = table.head[place].split("\n")
    return max(_longest_line(table, place), *map(cell_len, [*head.split(), *below, ""]))


def _longest_line(table: TextTable, place: int) -> int:
    return max((cell_len(line) for row in table.rows for line in row[place].split("\n")), default=0)


def _wrapped(text: str, width: int) -> Styled:
    return Styled("\n".join("\n".join(textwrap.wrap(line, width, **WRAP) or [""]) for line in text.split("\n")))


def _styled(text: str) -> Styled:
    """The first line plain, what stands below it dim, the marks of a difference in colour."""
    styled = Styled(text)
    if (first := text.find("\n")) >= 0:
        styled.stylize("dim", first)
    styled.highlight_regex(rf"\S+ {BETTER}", "not dim bold green")
    styled.highlight_regex(rf"\S+ {WORSE}", "not dim bold red")
    return styled
