"""Where the command line of a known agent carries its prompt. Nothing is guessed: what is not certain is not found.

Each grammar holds the options as the program's own documentation lists them. A new agent is one entry in `AGENTS`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from core.errors import UserError

HOW = (
    "Give the task as --task TEXT or --task-file FILE (or in $REASONINGBANK_TASK). The command then finds the lessons "
    "in $REASONINGBANK_MEMORY and in the file $REASONINGBANK_MEMORY_FILE, on its stdin with --stdin memory|prompt, "
    "and wherever an argument is just {memory} or {prompt}."
)
_WORD = re.compile(r"[\w:.-]+")  # what may be a subcommand that is not known here, and hardly is a prompt
_SLASH = re.compile(r"/[\w:.-]+(?=\s|$)")  # "/review 12" is a command of the agent's own, if nothing stands before it
SAYS_PROMPT = ("--task", "--prompt", "--instruction", "--instructions", "--query", "--question", "--goal")
PLACEHOLDERS = ("{memory}", "{prompt}")


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """The arguments of a program, or of one of its subcommands. Names of options are separated by blanks.

    prompt       options whose value is the prompt
    flags        options without a value
    values       options with a value
    pairs        options with two values
    lists        options that take all words up to the next option
    maybe        options that take the next word unless it is an option
    before       number of arguments before the prompt, e.g. 1 for a model's name
    takes        arguments that are the prompt: none | one | all (joined by the program with blanks)
    certain      flags with which even a single word is a prompt, though the program has subcommands
    never        options with which the arguments are no prompt, such as the name of a command that takes them
    attached     -pVALUE is -p with VALUE; False: these are flags and only -p=VALUE is one, as yargs has it
    commands     its subcommands with a prompt
    others       those without one
    """

    prompt: str = ""
    flags: str = ""
    values: str = ""
    pairs: str = ""
    lists: str = ""
    maybe: str = ""
    before: int = 0
    takes: str = "none"
    certain: str = ""
    never: str = ""
    attached: bool = True
    commands: Mapping[str, Grammar] = field(default_factory=dict)
    others: str = ""

    def kind(self, option: str) -> str:
        """The field that lists an option; "" for an unknown one."""
        kinds = ("prompt", "flags", "values", "pairs", "lists", "maybe")
        return next((kind for kind in kinds if option in getattr(self, kind).split()), "")

    def within(self, outer: Grammar) -> Grammar:
        """This subcommand's grammar with the options of the program, which may stand behind it as well."""
        both = {kind: f"{getattr(self, kind)} {getattr(outer, kind)}" for kind in ("flags", "values", "lists", "maybe")}
        return Grammar(**{**vars(self), **both, "attached": outer.attached})


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt in a command: from character `start` of the argument at `place` on.

    text   all of it, also if the program joins several arguments to one prompt
    """

    text: str
    place: int
    start: int = 0

    def with_text(self, command: list[str], text: str) -> list[str]:
        """The command with `text` before its prompt; nothing else is changed."""
        word = command[self.place]
        changed = word[: self.start] + text + word[self.start :]
        return [*command[: self.place], changed, *command[self.place + 1 :]]


_CODEX_VALUES = (
    "-m --model -c --config -p --profile -C --cd -s --sandbox -a --ask-for-approval --add-dir --enable --disable "
    "--local-provider --color --output-schema -o --output-last-message --remote --remote-auth-token-env "
    "--thread-source --cyber-access-program"
)
_CODEX_FLAGS = (
    "--oss --full-auto --dangerously-bypass-approvals-and-sandbox --yolo --search --no-alt-screen "
    "--skip-git-repo-check --json --experimental-json --ephemeral --include-plan-tool --last --all --strict-config "
    "--approve-for-me --dangerously-bypass-hook-trust --worktree --no-daemon --trust --ignore-user-config "
    "--ignore-rules"
)
_CODEX = {"flags": _CODEX_FLAGS, "values": _CODEX_VALUES, "lists": "-i --image"}
_GEMINI = {
    "prompt": "-p --prompt -i --prompt-interactive",
    "flags": "-d --debug -s --sandbox -y --yolo -l --list-extensions --experimental-acp --acp --checkpointing "
    "--screen-reader",
    "values": "-m --model --approval-mode -o --output-format --sandbox-image --telemetry-target "
    "--telemetry-otlp-endpoint --telemetry-otlp-protocol --telemetry-outfile --proxy --session-id",
    "lists": "-e --extensions --allowed-mcp-server-names --allowed-tools --include-directories",
    "takes": "all",
    "attached": False,
}
_MINI = Grammar(
    prompt="-t --task",
    flags="-y --yolo -v --visual -b --exit-immediately",
    values="-m --model --model-class --agent-class --environment-class -l --cost-limit -c --config -o "
    "--output --output-path",
)


def _joined(shared: Mapping[str, Any], **more: str) -> dict[str, Any]:
    """The fields that programs share, each with what one of them has besides."""
    return {**shared, **{kind: f"{shared.get(kind, '')} {names}" for kind, names in more.items()}}


_LLM = {
    "flags": "--td --tools-debug --ta --tools-approve --no-stream -n --no-log --log -c --continue -u --usage -x "
    "--extract --xl --extract-last --async -R --hide-reasoning --json --options",
    "values": "-s --system -m --model -d --database -q --query -a --attachment -T --tool --functions --cl "
    "--chain-limit --schema --schema-multi -f --fragment --sf --system-fragment -t --template --cid --conversation "
    "--key --save",
    "pairs": "--at --attachment-type -o --option -p --param",
    "takes": "one",
    "never": "--save",  # into a template
}
AGENTS: dict[str, Grammar] = {
    "claude": Grammar(  # Claude Code
        flags="-p --print -c --continue --verbose --dangerously-skip-permissions --allow-dangerously-skip-permissions "
        "--include-partial-messages --replay-user-messages --fork-session --ide --strict-mcp-config --mcp-debug --bare "
        "--no-session-persistence --disable-slash-commands --chrome --no-chrome --init --init-only --maintenance "
        "--brief --ax-screen-reader --bg --background --exclude-dynamic-system-prompt-sections --include-hook-events "
        "--safe-mode",
        values="--model --fallback-model --output-format --input-format --max-turns --max-budget-usd --permission-mode "
        "--permission-prompt-tool --append-system-prompt --append-system-prompt-file --system-prompt "
        "--system-prompt-file --session-id --settings --setting-sources --agent --agents --json-schema --effort "
        "--debug-file -n --name --plugin-url --remote-control-session-name-prefix",
        lists="--allowedTools --allowed-tools --disallowedTools --disallowed-tools --tools --mcp-config --add-dir "
        "--betas --plugin-dir --file",
        maybe="-r --resume -d --debug -w --worktree --from-pr --teleport --remote --tmux "
        "--remote-control --prompt-suggestions",
        takes="one",
        certain="-p --print",
        others="mcp config update upgrade doctor install plugin plugins auth setup-token agents migrate-installer "
        "remote-control auto-mode server gateway project ultrareview",
    ),
    "codex": Grammar(
        **_CODEX,
        takes="one",
        commands={
            name: Grammar(
                **_CODEX,
                takes="one",
                commands={"resume": Grammar(**_CODEX, before=1, takes="one")},
                others="review fork help",
            )
            for name in ("exec", "e")
        },
        others="login logout mcp mcp-server app-server app completion sandbox debug apply a resume fork cloud features "
        "review execpolicy help generate-ts proto agents plugin remote-control update doctor queue archive delete "
        "unarchive migrate-rollouts migrate-nfs-db exec-server",
    ),
    "gemini": Grammar(
        **_joined(
            _GEMINI,
            flags="-a --all-files -c --show-memory-usage --telemetry "
            "--telemetry-log-prompts --list-sessions --raw-output --accept-raw-output-risk --skip-trust",
            values="--delete-session --session-file",
            lists="--policy --admin-policy",
            maybe="-r --resume -w --worktree",
        ),
        others="mcp extensions extension skills skill hooks hook gemma",
    ),
    "qwen": Grammar(
        **_joined(
            _GEMINI,  # Qwen Code, which began as Gemini CLI
            flags="-a --all-files -c --continue --show-memory-usage --telemetry --telemetry-log-prompts --bare "
            "--chat-recording --experimental-lsp --experimental-skills --openai-logging --include-partial-messages",
            values="--openai-api-key --openai-base-url --openai-logging-dir --auth-type --input-format "
            "--max-session-turns --system-prompt --append-system-prompt --mcp-config --channel --json-fd --json-file "
            "--json-schema --input-file",
            lists="--add-dir --core-tools --exclude-tools --disabled-slash-commands",
            maybe="-r --resume",
        ),
        others="mcp extensions extension hooks hook auth channel review",
    ),
    "opencode": Grammar(
        prompt="-p --prompt",
        flags="--print-logs -c --continue --fork --pure --mdns --auto --mini --no-replay",
        values="--log-level -m --model -s --session --agent --port --hostname --mdns-domain --replay-limit",
        lists="--cors",
        attached=False,
        commands={
            "run": Grammar(
                flags="-c --continue --share --fork --thinking -i --interactive --dangerously-skip-permissions --auto",
                values="-s --session --command -m --model --agent --format --title --attach --port --variant --dir -u "
                "--username -p --password",
                lists="-f --file",
                takes="all",
                never="--command",
            ),
        },
        others="completion acp mcp attach debug auth providers agent upgrade uninstall serve web models stats export "
        "import github pr session plugin plug db",
    ),
    "ollama": Grammar(
        commands={
            "run": Grammar(
                flags="--hidethinking --insecure --nowordwrap --verbose --truncate --experimental --experimental-yolo "
                "--experimental-websearch --think",  # --think=LEVEL
                values="--format --keepalive --dimensions",
                before=1,
                takes="all",
            ),
        },
    ),
    "llm": Grammar(
        **_LLM,
        commands={"prompt": Grammar(**_LLM)},
        others="aliases chat collections embed embed-models embed-multi fragments install keys logs models openai "
        "plugins schemas similar templates tools uninstall",
    ),
    "aider": Grammar(
        prompt="-m --message --msg", values="-f --message-file --model --commit-prompt --lint-cmd --test-cmd"
    ),
    "goose": Grammar(
        commands={
            "run": Grammar(
                prompt="-t --text",
                values="-i --instructions --recipe --params --sub-recipe -n --name --session-id --path --system "
                "--provider --model --max-turns --max-tool-repetitions --with-extension --with-remote-extension "
                "--with-streamable-http-extension --with-builtin --output-format --container",
            ),
            "r": Grammar(prompt="-t --text"),
        },
    ),
    "cursor-agent": Grammar(
        flags="-p --print -f --force --yolo --stream-partial-output -b --background --fullscreen --approve-mcps "
        "--browser --continue --cloud -c --plan --trust --list-models",
        values="-a --api-key -m --model --output-format --workspace -H --header --mode --sandbox --endpoint",
        maybe="--resume -w --worktree",
        takes="all",
        certain="-p --print",
        others="install-shell-integration uninstall-shell-integration login logout mcp status whoami update upgrade "
        "models create-chat generate-rule rule agent ls resume about sandbox worker help",
    ),
    "copilot": Grammar(
        prompt="-p --prompt -i --interactive",
        values="--model --agent --log-dir --add-dir --allow-tool -n --name -C --session-id "
        "--reasoning-effort --context",
    ),
    "crush": Grammar(
        flags="-d --debug -y --yolo",
        values="-c --cwd -D --data-dir",
        commands={"run": Grammar(flags="-q --quiet -v --verbose", values="-m --model --small-model", takes="all")},
    ),
    "mini": _MINI,  # mini-swe-agent
    "mini-swe-agent": _MINI,
    "openhands": Grammar(prompt="-t --task", values="-f --file --resume"),
}


def name_of(command: list[str]) -> str:
    """The program's name as AGENTS has it: without its folder, and without Windows' suffix."""
    name = PureWindowsPath(PurePosixPath(command[0]).name).name.lower()
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", name)


def prompt_in(command: list[str]) -> Prompt:
    """The prompt of a command. Raises UserError, which says how to name the task, unless its place is certain."""
    name = name_of(command)
    if name not in AGENTS:
        raise UserError(f"which argument of {command[0]} is its prompt is not known here. {HOW}")
    found = _Reader(name, command).prompt()
    if not found.text.strip():
        raise UserError(f"the prompt of {name} is empty. {HOW}")
    return found


def prompt_named(command: list[str], task: str) -> Prompt | None:
    """The value of an option such as --task of a program that is not known, if it is the task and stands there once."""
    if name_of(command) in AGENTS or not task.strip():
        return None
    found = [
        Prompt(text=value, place=place + (not equals), start=len(name) + 1 if equals else 0)
        for place, word in enumerate(command)
        for name, equals, behind in [word.partition("=")]
        if name in SAYS_PROMPT and (value := behind if equals else "".join(command[place + 1 : place + 2])) == task
    ]
    return found[0] if len(found) == 1 and sum(task in word for word in command) == 1 else None


@dataclass
class _Reader:
    """Reads a command by the grammar of its program."""

    name: str
    command: list[str]
    grammar: Grammar = field(init=False)  # of the subcommand, once it is read
    seen: set[str] = field(default_factory=set)  # the options

    def prompt(self) -> Prompt:
        """The only prompt. Raises UserError if there is none, more than one, or any doubt."""
        self.grammar = AGENTS[self.name]
        by_option, arguments = [], []
        for kind, found in self._parts():
            if kind == "prompt":
                by_option.append(found)
            elif kind != "argument":
                continue
            elif not arguments and found.text in self.grammar.commands:
                self.grammar = self.grammar.commands[found.text].within(self.grammar)
            elif not arguments and found.text in self.grammar.others.split():
                raise UserError(f"{self.name} {found.text} takes no prompt. {HOW}")
            else:
                arguments.append(found)
        arguments = arguments[self.grammar.before :] if self.grammar.takes != "none" else []
        if len(by_option) + bool(arguments) != 1:
            raise UserError(f"{self.name} has {'two prompts' if by_option else 'no prompt'} in its arguments. {HOW}")
        if never := self.seen & set(self.grammar.never.split()):
            raise UserError(f"with {never.pop()} the arguments of {self.name} are no prompt. {HOW}")
        if by_option:
            return self._certain(by_option[0], not by_option[0].start and by_option[0].text.startswith("-"))
        single = len(arguments) == 1 and _WORD.fullmatch(arguments[0].text)
        perhaps_a_command = single and self.grammar.others and not self.seen & set(self.grammar.certain.split())
        several = self.grammar.takes == "one" and len(arguments) > 1
        whole = Prompt(text=" ".join(each.text for each in arguments), place=arguments[0].place)
        return self._certain(whole, several or perhaps_a_command or whole.text == "-")

    def _certain(self, found: Prompt, doubt: object) -> Prompt:
        if doubt or _SLASH.match(found.text) or found.text.strip() in PLACEHOLDERS:
            raise UserError(f"whether {found.text[:80]!r} is the prompt of {self.name} is not certain. {HOW}")
        return found

    def _parts(self) -> Iterator[tuple[str, Prompt]]:
        """(the kind of an option, or "argument", its value) in order, by the grammar in force when it is reached."""
        place, words = 1, self.command
        while place < len(words):
            word = words[place]
            if word == "--":
                yield from (("argument", Prompt(text=words[at], place=at)) for at in range(place + 1, len(words)))
                return
            if word == "-" or not word.startswith("-"):
                yield "argument", Prompt(text=word, place=place)
                place += 1
                continue
            option, start = self._option(word)
            kind = self.grammar.kind(option)
            self.seen.add(option)
            behind = 0 if start else self._arguments_from(place + 1)
            if not kind and behind and self.grammar.takes != "none":
                why = f"{self.name} {option} is not known here, and may take {words[place + 1][:80]!r} as its value"
                raise UserError(f"{why}. {HOW}")
            if start:
                yield kind, Prompt(text=word[start:], place=place, start=start)
                taken = 0
            else:
                taken = {"prompt": 1, "values": 1, "pairs": 2, "maybe": min(behind, 1), "lists": behind}.get(kind, 0)
                value = words[place + 1] if taken and place + 1 < len(words) else ""
                yield kind, Prompt(text=value, place=place + 1)
            place += 1 + taken

    def _arguments_from(self, place: int) -> int:
        """How many words from `place` on are no options."""
        return len(list(itertools.takewhile(lambda word: not word.startswith("-"), self.command[place:])))

    def _option(self, word: str) -> tuple[str, int]:
        """(the option in a word, where its value begins in the word; 0: elsewhere). -xyVALUE and -x=VALUE too."""
        name, equals, _ = word.partition("=")
        if word.startswith("--"):
            return name, len(name) + 1 if equals else 0
        for at in range(1, len(word)):
            kind = self.grammar.kind(f"-{word[at]}")
            if not kind:
                return word, 0
            if kind != "flags":
                start = at + 1 + (word[at + 1 : at + 2] == "=")
                if at + 1 == start < len(word) and not self.grammar.attached:
                    return word, 0
                return f"-{word[at]}", start if start < len(word) else 0
        return f"-{word[-1]}", 0
