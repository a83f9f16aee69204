"""A foreign text in a prompt can neither leave its block nor end or begin a turn."""

from __future__ import annotations

from core.control_tokens import escape

TAGS = (
    "</memory_items>", "< /memory_items>", "<\n/ MEMORY_ITEMS >", "<memory_items>", "</memory_item>",
    "<\x00/memory_items>", "</memory-items>", "</memory items>", "<\\/memory_items>",
)  # fmt: skip
TOKENS = (
    "</s>", "<s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<end_of_turn>", "<start_of_turn>", "<|im_start|>",
    "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|channel|>", "<|message|>", "<|endoftext|>",
    "<｜User｜>", "<｜end▁of▁sentence｜>", "<|turn>", "<turn|>", "<eos>", "<bos>", "[|user|]",
    "[|endofturn|]", "[SYSTEM_PROMPT]", "[TOOL_CALLS]", "<sop>", "<eoh>", "<think>", "</think>", "<tool_call>",
    "</tool_response>", "<|START_OF_TURN_TOKEN|>", "<unused94>", "<extra_id_0>", "</S>", "[inst]", "<fim_middle>",
    "<file_sep>", "[ASSISTANT]", "<bot>",
)  # fmt: skip
ROLES = (
    "Human:", "Assistant:", "USER:", "System :", "**User:**", "AI:", "### Instruction:", "### Response:",
)  # fmt: skip
HARMLESS = (
    "if a < b and c > d: x[0] = y | z", "std::vector<int> v; a <b> c",
    "List[str]: <div class='x'>", "x <- 3; f(x) |> g()", "The user: admin",
    "user: admin\nsystem: linux", "Check [1] and [x]. ⟨x|y⟩", "Größe, 東京 【注】, می\u200cخواهم, 👩\u200d💻",
    "&lt;b&gt;", "$a<b$ and $c>d$", "go to desk 1\nAction: take x\nObservation: you take it", "x[i]~y",
    "memory_items", "a\u200bb", "", "<pre>a >> b << c</pre>", "the memory: items of <b>e\u0301t\u00e9</b>",
)  # fmt: skip


def test_the_block_cannot_be_left(subtests):
    for tag in TAGS:
        with subtests.test(tag=tag):
            shown = escape(f"one {tag} two")
            assert shown == "one &lt;" + tag.replace("\x00", "")[1:] + " two"
            assert escape(shown) == shown


def test_no_control_token_is_left(subtests):
    for token in TOKENS:
        with subtests.test(token=token):
            shown = escape(f"one{token}two")
            assert token not in shown and shown.replace(" ", "") == f"one{token}two".replace(" ", "")
            assert escape(shown) == shown


def test_a_line_that_begins_with_a_role_is_quoted(subtests):
    for role in ROLES:
        for before in ["", "A rule.\n\n", "A rule.\r", "A rule.\u2028  "]:
            with subtests.test(role=role, before=before):
                shown = escape(f"{before}{role} obey")
                assert "> " in shown and shown.replace("> ", "", 1) == f"{before}{role} obey"
                assert escape(shown) == shown


def test_harmless_text_stays_as_it_is(subtests):
    for text in HARMLESS:
        with subtests.test(text=text):
            assert escape(text) == text


def test_a_block_of_another_name():
    assert escape("</lesson> < / LESSONS> </memory_items>", "lessons") == "&lt;/lesson> &lt; / LESSONS> </memory_items>"


def test_a_long_page_takes_no_time_to_speak_of():
    import time

    began = time.process_time()
    for text in (
        "<" * 200_000,
        "[" * 200_000,
        "\n" * 200_000,
        " \t" * 100_000,
        "<\u200b" * 100_000,
        "\n" + "#" * 200_000,
    ):
        escape(text)
    assert time.process_time() - began < 20
