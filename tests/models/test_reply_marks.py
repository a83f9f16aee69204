"""What a reply says, whatever marks its model's family and its server leave in it."""

from __future__ import annotations

import json

from core.agent import ActAgent, BashAgent, CoTAgent, ReActAgent
from core.learning.structured import parse_json, parse_lessons, parse_status
from core.reply_marks import own_turn, plain_reply, tagged_answers, untagged
from core.types import Lesson
from single_turn_bench.answers import extract_answer
from single_turn_bench.choice import extract_choice
from single_turn_bench.verbatim import verbatim_answer

REACT, ACT, BASH, COT = (kind(answer_format="") for kind in (ReActAgent, ActAgent, BashAgent, CoTAgent))
THOUGHTS = [
    "<think>{}</think>",
    "<thinking>{}</thinking>",
    "<thought>{}</thought>",
    "<Thought>{}</Thought>",
    "<reasoning>{}</reasoning>",
    "<reflection>{}</reflection>",
    "<analysis>{}</analysis>",
    "<chain_of_thought>{}</chain_of_thought>",
    "<seed:think>{}</seed:think>",
    "<seed:cot_budget_reflect>{}</seed:cot_budget_reflect>",
    "<mm:think>{}</mm:think>",
    "<longcat_think>{}</longcat_think>",
    "<thinking>{}<reflection>no</reflection></thinking>",
    "[THINK]{}[/THINK]",
    "[REASONING]{}[/REASONING]",
    "◁think▷{}◁/think▷",
    "<|begin_of_thought|>{}<|end_of_thought|>\n\n<|begin_of_solution|>",
    "<|START_THINKING|>{}<|END_THINKING|><|START_RESPONSE|>",
    "<redacted_thinking>{}</redacted_thinking>",
    "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>commentary<|message|>Wait.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>",
    "<|channel|>analysis<|message|>{}<|end|>",
    "analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
    "{}<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
    # families that leave the opening mark to the prompt
    "{}</think>",
    "{}</thought>",
    "{}[/THINK]",
    "{}◁/think▷",
    "{}<|end_of_thought|>",
    "{}</seed:think>",
]


def test_nothing_in_thoughts_is_an_answer_a_letter_or_an_action(subtests):
    for marks in THOUGHTS:
        with subtests.test(marks):
            guess = marks.format(
                "We guess \\boxed{41}. The answer is (A).\nAction: go to bed 2\n```bash\nrm x\n```\nStatus: failure\n"
            )
            assert plain_reply(f"{guess}42").strip() == "42"
            assert extract_answer(f"{guess}42").answer == "42"
            assert extract_choice(f"{guess}B", 4) == "B"
            assert verbatim_answer(f"{guess}dog, cat").answer == "dog, cat"
            assert REACT.parse(f"{guess}Thought: I look.\nAction: go to bed 1") == ("I look.", "go to bed 1")
            assert ACT.parse(f"{guess}go to bed 1")[1] == "go to bed 1"
            assert BASH.parse(f"{guess}I look.\n```bash\nls\n```") == ("I look.", "ls")
            assert COT.parse(f"{guess}42")[1] == "42"
            assert parse_status(f"{guess}Status: success") == "success"
            assert parse_json(f'{guess}{{"index": 2}}', "index") == {"index": 2}


BEGUN = [
    "<think>",
    "<thinking>",
    "<seed:think>",
    "[THINK]",
    "◁think▷",
    "<|begin_of_thought|>",
    "<|channel|>analysis<|message|>",
    "<reasoning>",
    "<|START_THINKING|>",
    "  <thought>",
]


def test_thoughts_that_were_cut_off_say_nothing(subtests):
    for begun in BEGUN:
        with subtests.test(begun):
            assert plain_reply(f"{begun}We guess 41. Action: look").strip() == ""


TOKENS = [
    "<|im_end|>",
    "<|eot_id|>",
    "</s>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|end|>",
    "[/INST]",
    "<|END_OF_TURN_TOKEN|>",
    "<eos>",
    "[|endofturn|]",
    "<|user|>",
    "<turn|>",
    "<｜User｜>",
    "<|eom_id|>",
    "<|endofprompt|>",
    "<|observation|>",
    "<|end_of_text|>",
    " <|im_end|>\n",
    "<|im_end|><|endoftext|>",
]


def test_a_token_at_the_end_is_cut(subtests):
    for token in (*TOKENS, "<|im_e", "<|eot_id"):
        with subtests.test(token):
            assert extract_answer(f"6 times 7.\n#### 42{token}").answer == "42"
            assert extract_answer(f"42{token}").answer == "42"
            assert extract_choice(f"B{token}", 4) == "B"
            assert verbatim_answer(f"dog, cat{token}").answer == "dog, cat"
            assert REACT.parse(f"I look.\nAction: go to bed 1{token}")[1] == "go to bed 1"
            assert ACT.parse(f"go to bed 1{token}")[1] == "go to bed 1"
            assert BASH.parse(f"```bash\nls\n```{token}")[1] == "ls"
            assert parse_status(f"Thoughts: fine\nStatus: success{token}") == "success"
            lesson = Lesson(title="Add", description="sums", content="Write the sum.")
            plain = f"# Memory Item 1\n## Title Add\n## Description sums\n## Content Write the sum.{token}"
            item = {"title": "Add", "description": f"sums{token.strip()}", "content": f"Write the sum.{token.strip()}"}
            in_json = json.dumps({"items": [item]}, ensure_ascii=False)
            assert parse_lessons(plain, 3)[0] == parse_lessons(in_json, 3)[0] == [lesson]


def test_a_token_in_the_middle_ends_the_reply(subtests):
    for token in TOKENS:
        with subtests.test(token):
            assert own_turn(f"The answer is 42.{token}\nuser\nWhat is 3+3?").strip() == "The answer is 42."
            assert extract_answer(f"The answer is 42.{token}\nWhat is 3+3?\nThe answer is 6.").answer == "42"
            assert extract_choice(f"The answer is B.{token}\nThe answer is C.", 4) == "B"
            two = f'{{"index": 2}}{token}{{"index": 1}}'
            assert parse_json(two, "index") == {"index": 2}


LEADS = [
    "<|im_start|>assistant\n",
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<start_of_turn>model\n",
    "<s> ",
    "<|assistant|>\n",
    "[/INST] ",
    "[INST] 6 * 7? [/INST] ",
    "<｜Assistant｜>",
    "assistant\n\n",
    "[|assistant|]",
    "<bos>",
    "<|start|>assistant<|channel|>final<|message|>",
    "<|turn>model\n",
    "<|CHATBOT_TOKEN|>",
    "\n<|im_start|>assistant\n\n",
]


def test_tokens_at_the_beginning_are_skipped(subtests):
    for lead in LEADS:
        with subtests.test(lead):
            assert plain_reply(f"{lead}42").strip() == "42"
            assert ACT.parse(f"{lead}go to bed 1")[1] == "go to bed 1"


ORDINARY = [
    'Write "<think>" first.',
    "The `</s>` token ends it.",
    "```\n<|im_end|>\n<think>\n```\nThat is all.",
    'click("<|im_end|>")',
    '{"content": "Close <think> and </think>."}',
    "Close the <reasoning> block first.",
    "0 < |x| < 1, or 0<|x|<1",
    "<|psi|> is a state",
    "<x|y> = 0",
    "|a|<|b|",
    "It was <s>41</s>, so 42",
    "x <s> y",
    "<|tool_call_begin|>act<|tool_call_end|>",
    "<|python_tag|>{}",
    "[thought] in brackets",
    "[INSTITUTE] of physics",
    "An analysis follows: 42",
    "analysis of the sums",
    "the assistant finalises it",
    "I am an assistant\n\nof the user",
    "List<string> a; Map<int, end> b",
    "<answer>42</answer>",
    "<b>42</b>",
    "use <eosin> dye",
    "[PADDING]",
    "a [END] b",
    "1. <reflections> is a word",
    "x </think",
    "&lt;/s&gt;",
    "<|>",
    "||end||",
    "[/INSTALL]",
]


def test_ordinary_text_is_left_alone(subtests):
    for text in ORDINARY:
        with subtests.test(text):
            assert text.startswith("x <s>") or plain_reply(text) == text


def test_turns_whose_marks_the_server_dropped_end_the_reply():
    assert plain_reply("42\nuser\nWhat is 3+3?\nassistant\n6") == "42"
    assert plain_reply("root\nuser\nadmin") == "root\nuser\nadmin"  # a list


def test_a_second_turn_with_thoughts_of_its_own_is_none_of_the_reply():
    text = "41?</think>42<|im_end|>\n<|im_start|>user\nAnd 3+3?<|im_end|>\n<|im_start|>assistant\n5?</think>6"
    assert plain_reply(text) == "42"
    assert plain_reply("He wrote </think> in it. 41?</think>42") == "42"


def test_a_lesson_about_marks_keeps_them_and_none_that_a_server_left():
    item = (
        '{"title": "T", "description": "D", "content": "Close the <think> block, then \\"</s>\\" ends it.<|im_end|>"}'
    )
    [lesson] = parse_lessons(f'{{"items": [{item}]}}', 3)[0]
    assert lesson.content == 'Close the <think> block, then "</s>" ends it.'


TAGS = [
    "<answer>{}</answer>",
    "<answer>\n{}\n</answer>",
    "I thought.\n<answer>\n{}\n</answer>",
    "<Answer> {} </Answer>",
    "<answer>{}</answer>\nThis follows from 6 rows of 9, and not from C.",
    "<final_answer>{}</final_answer>",
    "[ANSWER]{}[/ANSWER]",
    "<|begin_of_box|>{}<|end_of_box|>",
    "<answer>\\boxed{{{}}}</answer>",
    "<answer>{}",
    "Use <answer></answer>, or <answer>your answer</answer>.\n<answer>{}</answer>",
    "<answer>{}</answer><|im_end|>",
    "<think><answer>41</answer></think><answer>{}</answer>",
    "<response>\n<answer>{}</answer>\n</response>",
    '<answer type="x">{}</answer>',
    "**<answer>{}</answer>**",
    "<answer>{}<answer>",
]


def test_an_answer_in_tags_is_the_answer(subtests):
    for tag in TAGS:
        with subtests.test(tag):
            assert (extract_answer(tag.format("42")).answer, extract_answer(tag.format("42")).rule) == ("42", "tag")
            assert extract_choice(tag.format("B"), 4) == "B"
            assert extract_choice(tag.format("(B) Paris") if "box" not in tag else tag.format("B"), 4) == "B"
            assert verbatim_answer(tag.format("dog, cat")).answer == "dog, cat"
            if "boxed" not in tag:
                assert REACT.parse(tag.format("go to bed 1"))[1] == "go to bed 1"
                assert REACT.parse(tag.format("Action: go to bed 1"))[1] == "go to bed 1"
                assert "thought" in tag or "Use" in tag or ACT.parse(tag.format("go to bed 1"))[1] == "go to bed 1"


def test_a_box_behind_tags_counts_and_a_tag_within_an_action_is_part_of_it():
    assert extract_answer("<answer>41</answer> No.\n\\boxed{42}").answer == "42"
    assert REACT.parse("Action: send('<answer>4</answer>')")[1] == "send('<answer>4</answer>')"
    assert REACT.parse("I send it. Action: send('<answer>4</answer>')")[1] == "send('<answer>4</answer>')"
    assert untagged("<action>look</action>").strip() == "Action: look"
    assert [tag.content for tag in tagged_answers("<answer>a</answer> <answer>b</answer>")] == ["a", "b"]
    assert REACT.parse("<thought>bed 2</thought>\n<action>go to bed 1</action>")[1] == "go to bed 1"
