"""env=mind2web with worked examples in its instructions."""

from __future__ import annotations

import json
import re

import pytest
from test_mind2web import make

from core.errors import UserError
from envs.mind2web.data import SAMPLE
from envs.mind2web.score import read_action, read_choice
from envs.mind2web.shots import OWN, examples


@pytest.mark.parametrize(("form", "read"), [("ids", read_action), ("choices", read_choice)])
def test_each_example_has_a_reply_that_is_read_and_an_element_that_is_there(form, read):
    text = examples(3, form)
    assert [int(n) for n in re.findall(r"^Example (\d)$", text, re.MULTILINE)] == [1, 2, 3]
    replies = re.findall(r"^Reply: (.*)$", text, re.MULTILINE)
    assert len(replies) == 3 and all(read(reply) for reply in replies)
    for example in json.loads(OWN.read_text()):
        said, letter = read_action(example["ids"]), read_choice(example["choice"])[0]
        named = re.compile(rf"id={said.element}\b")
        assert named.search(example["html"])
        chosen = example["choices"]["ABCD".index(letter) - 1] if letter != "A" else None
        assert chosen is None or named.search(chosen)
        assert letter != "A" or not any(map(named.search, example["choices"]))


def test_as_many_as_asked_stand_in_the_instructions_and_none_by_default():
    assert "Example" not in make().instructions and "shots" not in make().describe()
    for n in (1, 2, 3):
        env = make(shots=n)
        assert env.instructions.count("\nReply: ") == n and env.describe()["shots"]
    assert "B. TYPE [KX81QD]" in make(shots=3, form="choices", max_steps=200).instructions
    assert len({make(shots=n).describe()["shots"] for n in (1, 2, 3)}) == 3
    tasks = {record["confirmed_task"] for record in json.loads((SAMPLE / "records.json").read_text())}
    assert tasks.isdisjoint(example["task"] for example in json.loads(OWN.read_text()))
    for wrong, said in ((-1, "shots"), (4, "shots=4: shots.json has 3")):
        with pytest.raises(UserError, match=said):
            make(shots=wrong)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "no examples as in shots.json"),
        ("[]", "env.shots=3: mine.json has 0 examples"),
        ('[{"html": "x"}]', "'task' is missing|'previous' is missing|'ids' is missing"),
        ("{}", "no examples as in shots.json"),
        ("no json", "no examples as in shots.json"),
    ],
)
def test_a_file_of_another_form_is_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "mine.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        make(shots=3, shots_file=str(path))
