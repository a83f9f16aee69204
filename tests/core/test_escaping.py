"""Foreign text as a person reads it: nothing that a terminal obeys, Markdown hides, or a spreadsheet calculates."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape

import pytest

from analysis.text_table import TextTable, to_latex, to_markdown
from core.escaping import markdown, printable, spreadsheet

markdown_it = pytest.importorskip("markdown_it")

OBEYED = {
    "clipboard": "\x1b]52;c;aGk=\x07",
    "link": "\x1b]8;;http://evil.example\x1b\\safe\x1b]8;;\x1b\\",
    "title": "\x1b]0;root\x07",
    "clear": "\x1b[2J\x1b[H",
    "one byte": "\x9b2J \x9d52;c;aGk=\x9c",
    "over the line": "failed\rpassed",
    "backspaces": "rm -rf\b\b\b\b\b\bls",
    "bell, form feed": "\x07\x0b\x0c",
    "hidden text": "a\ufe01\ufe02\ufe0ab\U0001d173c\u034f",
    "from right to left": "safe \u202etxt.exe\u202c \u2066x\u2069 \u200f",
    "hidden tags": "a\U000e0041\U000e0042",
    "invisible": "ad\u200bmin\u2060\ufeff\xad",
    "lines": "one\u2028two\u2029three\x85four",
    "half a pair": "\ud800",
    "delete": "\x7f\x00",
}
HARMLESS = (
    "tab\tand\nline",
    "Größe, 東京, العربية, می\u200cخواهم, 👩\u200d💻, ❤\ufe0f",
    "a < b | [x] `c` \\frac{1}{2} $5",
    "",
)


def test_what_a_terminal_obeys_is_written_out_and_stays_the_same_in_json(subtests):
    for name, text in OBEYED.items():
        with subtests.test(name):
            shown = printable(text)
            assert all(letter.isprintable() for letter in shown), shown
            assert printable(shown) == shown
            assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_is_unchanged(text):
    assert printable(text) == text


HIDDEN = {
    "comment": "<!-- hidden words -->",
    "definition": "[a]: http://hidden.words 'hidden words'",
    "spaced definition": "[a\nb]:\n  http://hidden.words",
    "details": "<details><summary>ok</summary>hidden words</details>",
    "image": "![hidden](http://hidden.words/x.png 'words')",
    "image by reference": "![x][y]\n\n[y]: http://hidden.words",
    "link": "[ok](javascript:hidden 'words')",
    "escaped link": "\\[ok](javascript:hidden 'words') \\\\[ok](javascript:hidden 'words') [ok\\](javascript:hidden)",
    "fence": "```text hidden words\nx\n```",
    "tildes": "~~~~ hidden words\nx\n~~~~",
    "processing": "<?hidden words?> <!HIDDEN words> <![CDATA[hidden words]]>",
    "script": "<script>hidden words</script> <SVG onload=hidden>words",
    "escaped tag": "\\<b hidden=words> \\\\<b hidden=words>",
    "cells too many": "| a |\n|---|\n| b | hidden words |",
    "cells, no bars": "a | b\n:-- | --:\nc | d | hidden words",
    "one column": "| a |\n:-\n| b | hidden words |",
    "one column, both sides": "a |\n  :-:\nb | hidden words",
    "formula": "$\\phantom{hidden words}$",
    "note": "x[^1]\n\n[^1]: hidden words",
    "entity": "&lt;hidden&gt; &#104;words",
    "nothing": "h\u200bidden \u202ewords",
}


def test_markdown_shows_every_letter(subtests):
    """A renderer with tables, of which what stands between the tags is what a reader sees."""
    for name, text in HIDDEN.items():
        with subtests.test(name):
            render = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).render
            quoted = "\n".join(f"> {line}" for line in markdown(text).split("\n"))
            made = render(quoted)
            assert not re.search(r"<(?!/?(?:p|blockquote|ul|li|ol|code|pre|br|em|strong|h\d)\b)", made), made
            seen = unescape(re.sub(r"<[^>]*>", "", made))
            fences = str.maketrans("", "", "`~")  # of code that is shown
            assert seen.translate(fences).split() == printable(text).translate(fences).split(), made


def test_markdown_leaves_ordinary_text_alone():
    text = "Use `list[int]` if a < b && c[0] > d; see snake_case, *both*.\n\n```python\nx = y[0]\n```\n- one\n- a -- b"
    assert markdown(text) == text


FORMULAS = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-x",
    "@SUM(A1)",
    "\tx",
    "\r=1",
    " =1",
    "ok;=1",
    "ok\n=1",
    "＝1",
    "=HYPERLINK(1)",
    "\ufeff=1",
    "\u200b\x00-x",
    "\ufe66SUM(1)",
)


def test_a_formula_becomes_a_text(subtests):
    for text in FORMULAS:
        with subtests.test(text=text):
            shown = spreadsheet(text)
            for cell in re.split(r"[;\n]", shown):
                assert not re.match(r"[\s\ufeff\u200b\x00]*[=+\-@＝\ufe66]", cell)
            assert shown.replace("'", "") == text.replace("'", "")


def test_numbers_and_names_stay_what_they_are(subtests):
    for value in [5, -2.5, None, "-0.5", "+1", "-1e-5", "1,234", "+3.2 %", "-", "no_memory", "a=b", "x - y"]:
        with subtests.test(value=value):
            assert spreadsheet(value) == value


def table(text: str) -> TextTable:
    return TextTable(title=text, head=["arm", text], rows=[[text, "1"], ["a", text]], notes=[text])


@pytest.mark.parametrize(
    "text", ["a|b", "a\\|b", "<img src=x>", "[a](http://x)", "![a](http://x)", "`a|b", "one\ntwo\n# three"]
)
def test_a_markdown_table_keeps_its_cells(text):
    made = markdown_it.MarkdownIt("commonmark").enable("table").render(to_markdown(table(text)).replace("<br>", " "))
    assert (made.count("<td"), len(re.findall("<th[ >]", made)), made.count("<h3>"), made.count("<li>")) == (
        4,
        2,
        1,
        1,
    ), made
    assert not re.search(r"<(img|a|h1)\b", made)


@pytest.mark.parametrize(
    "text",
    [
        "\\input{/etc/passwd}",
        "\\write18{ls}",
        "50% & _x_ ~ ^ # $x$",
        "}\\end{table}",
        "one\n\\input{x}",
        "[1em] x",
        "*x",
    ],
)
def test_latex_obeys_nothing_in_a_table(text):
    made = to_latex(table(text))
    ours = {
        "textbackslash",
        "textasciitilde",
        "textasciicircum",
        "begin",
        "end",
        "caption",
        "toprule",
        "midrule",
        "bottomrule",
    }
    code = [line for line in made.splitlines() if not line.startswith("% ")]  # the title stands in a comment, too
    assert set(re.findall(r"\\([A-Za-z]+)", "\n".join(code))) <= ours
    assert [code.count(rf"\{which}{{table}}") for which in ("begin", "end")] == [1, 1]
    assert not any(re.match(r"\s*[\[*]", line) for line in code)
    assert not any(re.search(r"(?<!\\)[%#]", line) for line in code)


def test_csv_holds_numbers_as_numbers():
    out = io.StringIO()
    csv.writer(out).writerow(map(spreadsheet, ("=1", -1.5, "-1.5")))
    assert out.getvalue() == "'=1,-1.5,-1.5\r\n"
