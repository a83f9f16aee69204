"""How large the code is, and how large it may be.

    python tests/sizes.py [--json]
    python tests/sizes.py --check

Lines and files of each room, percentiles of files and functions, rooms and import arrows, public names, config keys.
--check, which is part of `make lint`: the folders that hold more lines of Python than CEILINGS; exit status 1 if any.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = "core envs prompts workflows analysis single_turn_bench mcp_server scripts".split()
# Most lines of Python in each folder. To raise one, change its line here, in a commit that names what asks for it.
CEILINGS = {
    "analysis": 7_875,  # what an agent uses (arXiv 2601.22436), a recorded study, claims of what was run alone
    "benchmarks": 4_310,  # null worlds of rivals and controls, users of --holdout
    "core": 27_775,  # WordPiece, rivals and controls of 2026, any program as agent, own parts without decorator or base
    "docs": 30,
    "envs": 8_360,  # Harbor's layout, folders of one's own tasks, a memory group for the sandbox
    "hatch_build.py": 15,
    "hydra_plugins": 745,
    "main.py": 190,
    "mcp_server": 5_590,  # held-out tasks, old sessions, groups, a bank in one's own program, tokens of runs
    "prompts": 130,
    "reasoningbank_harness": 240,  # the one public module, and the commands of an installation
    "scripts": 1_940,
    "single_turn_bench": 3_850,  # rows with pictures, env.columns for validate as a run takes it
    "tests": 53_880,
    "workflows": 2_610,  # lessons that earn their place, retrieval within an attempt, parts that have changed
}


def sources() -> list[Path]:
    """Every Python file of the product."""
    found = (path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")))
    return [ROOT / "main.py", *(path for path in found if "bundled" not in path.parts)]  # its files are data


def lines_of(name: str) -> int:
    """Lines of Python in a folder or file of the repository, without the repositories that are data (bundled)."""
    paths = [ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py")
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths if "bundled" not in path.parts)


def too_large() -> list[str]:
    """A sentence for each folder above its ceiling, and for each with Python that has none."""
    said = []
    for name, most in CEILINGS.items():
        if (lines := lines_of(name)) > most:
            said.append(f"{name}: {lines:,} lines of Python, its ceiling in tests/sizes.py is {most:,}")
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {line.partition("/")[0] for line in tracked.splitlines()}
    return [*said, *(f"{name}: no ceiling in tests/sizes.py" for name in sorted(folders - set(CEILINGS)))]


def room(path: Path) -> str:
    """The folder of a file, from the repository's root."""
    return str(path.relative_to(ROOT).parent) if path.parent != ROOT else path.name


def imports(tree: ast.Module) -> Iterator[str]:
    """The project's modules that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if is_module(inner) else node.module


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def leaves(node: Any) -> list[Any]:
    """The values of nested data."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else None
    return [node] if inner is None else [leaf for each in inner for leaf in leaves(each)]


def measure() -> dict[str, Any]:
    import yaml

    lines: dict[str, list[int]] = defaultdict(list)
    functions, arrows, names = [], set(), 0
    for path in sources():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines[room(path)].append(text.count("\n"))
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        functions += [n.end_lineno - n.lineno + 1 for n in ast.walk(tree) if isinstance(n, kinds)]
        names += sum(isinstance(n, kinds | ast.ClassDef) and not n.name.startswith("_") for n in tree.body)
        for name in imports(tree):
            other = ROOT / name.replace(".", "/")
            arrows.add((room(path), str((other if other.is_dir() else other.parent).relative_to(ROOT))))
    arrows = {(one, other) for one, other in arrows if one != other}
    configs = [leaves(yaml.safe_load(path.read_text(encoding="utf-8"))) for path in (ROOT / "config").rglob("*.yaml")]
    files = [count for counts in lines.values() for count in counts]
    return {
        "lines": sum(files),
        "files": len(files),
        "file_lines": percentiles(files),
        "functions": len(functions),
        "function_lines": percentiles(functions),
        "public_names": names,
        "rooms": len(lines),
        "arrows": len(arrows),
        "config_values": sum(map(len, configs)),
        "by_room": {name: {"files": len(counts), "lines": sum(counts)} for name, counts in sorted(lines.items())},
    }


def percentiles(values: list[int]) -> dict[str, int]:
    """{p50, p90, most}."""
    cuts = quantiles(values, n=10, method="inclusive")
    return {"p50": round(cuts[4]), "p90": round(cuts[8]), "most": max(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        print("\n".join(said := too_large()), end="\n" if said else "")
        sys.exit(bool(said))
    found = measure()
    if args.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if name != "by_room":
            print(f"{name:<16}", ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value)
    for name, counts in found["by_room"].items():
        print(f"  {name:<30} {counts['files']:>3} files {counts['lines']:>6} lines")


if __name__ == "__main__":
    main()
