"""Convert Mind2Web's data, then run main.py. Takes the options of the ReasoningBank MCP server's script of this name.

    python -m scripts.eval_mind2web --data-root Mind2Web/test --split test_task --scores-pickle scores_all_data.pkl \\
        --top-k 50 --output-dir outputs/mind2web_test_task llm=dashscope [key=value ...]

key=value are options of main.py, such as arm=no_memory or limit=20. They also name the model, which that script
reads from --config; here --config is refused. The prompt has three examples, as in that script: our own, or those of
--prompt-template.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from core.errors import UserError
from envs.mind2web.data import COUNTS
from scripts.command_line import REPO, parser, plain_errors
from scripts.fetch_data import convert_mind2web


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--config", type=Path, metavar="FILE", help="refused: see above")
    options.add_argument("--data-root", type=Path, metavar="FOLDER", help="the public files; left out: fetched before")
    options.add_argument("--split", choices=[*COUNTS, "sample"], default="test_task")
    options.add_argument("--scores-pickle", type=Path, metavar="FILE", help="left out: looked for in --data-root")
    options.add_argument("--top-k", type=int, default=50, metavar="N", help="candidates of a page (50)")
    options.add_argument("--output-dir", type=Path, metavar="FOLDER", help="where the run and the converted data go")
    options.add_argument("--prompt-template", type=Path, metavar="FILE", help="in the form of envs/mind2web/shots.json")
    options.add_argument("overrides", nargs="*", metavar="key=value", help="as for main.py")
    words = words_of(options.parse_intermixed_args(arguments))
    return subprocess.run([sys.executable, "main.py", *words], cwd=REPO).returncode


def words_of(given) -> list[str]:
    """The overrides of main.py; converts the data first where a folder is given. Raises UserError."""
    if given.config:
        raise UserError("--config is for a server: name the model as for main.py, e.g. llm=dashscope.")
    folder = given.output_dir or Path(f"outputs/mind2web_{given.split}")
    words = ["env=mind2web", f"env.split={given.split}", f"env.top_k={given.top_k}", "env.shots=3"]
    words.append(f"run_dir={folder.resolve() / 'run'}")
    if given.prompt_template:
        words.append(f"env.shots_file={given.prompt_template.resolve()}")
    if given.data_root and given.split != "sample":
        data = folder.resolve() / "data"
        if not (data / f"{given.split}.zip").is_file():
            convert_mind2web(given.data_root, data, scores=given.scores_pickle)
        if not (data / f"{given.split}.zip").is_file():
            raise UserError(f"--data-root {given.data_root} has no files of {given.split}.")
        words.append(f"env.data={data}")
    return [*words, *given.overrides]


if __name__ == "__main__":
    sys.exit(main())
