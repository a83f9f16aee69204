"""env=scenarios: the contract, gold, hostile actions, and what the lessons are worth to who reads only the prompt."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import read_rows
from env_contract import ODD_ACTIONS, EnvContract

from core.agent import ActAgent, RandomAgent
from core.errors import UserError
from core.types import MemoryRecord, Scored
from envs.scenarios.engine import BadCall, parse_call, write_call
from envs.scenarios.env import JOBS, ScenariosEnv


def make(*jobs: str, **keys) -> ScenariosEnv:
    return ScenariosEnv(jobs=list(jobs or JOBS), instructions="Do the job.", **{"max_steps": 25, **keys})


class TestLoginAndShop(EnvContract):
    def make_env(self, folder: Path) -> ScenariosEnv:
        return make("login", "shop")


class TestOtherJobs(EnvContract):
    def make_env(self, folder: Path) -> ScenariosEnv:
        return make("payment", "migration", "batch", "deployment")


# A player for each job, who knows nothing but the prompt and the answers: what no lesson tells it does the obvious way.


def play_login(told, prompt):
    site = re.search(r"the site (\S+) as (\w+)\..*password is \"(\S+)\"", prompt)
    pattern = r'csrf-token" content="(\w+)' if told("the page's meta tag csrf-token") else r'name=csrf value="(\w+)'
    answer = ""
    for _ in range(9):
        wait, token = re.search(r"Retry-After: (\d+)", answer), re.search(pattern, answer)
        if wait and told("wait with as many seconds as Retry-After says"):
            yield f"wait(seconds={wait[1]})"
        if token:
            answer = yield write_call("login", user=site[2], password=site[3], csrf=token[1])
        else:
            answer = yield "open_page()"


def play_shop(told, prompt):
    cursor, page, prices = "start", 0, {}
    while cursor != "none":
        answer = yield write_call("get_page", cursor=cursor)
        page += 1
        if "more load" in answer and told("then scroll if more products load"):
            answer += "\n" + (yield write_call("scroll", cursor=cursor))
        for name, cents, ad in re.findall(r"- (.+): (\d+) cents( \(ad)?", answer):
            if not (ad and told("Ads of other shops do not count")):
                prices[name] = int(cents)
        cursor = re.search(r"next: (\w+)", answer)[1]
        if page == int(re.search(r"of (\d+)", answer)[1]) and not told("with the next cursor, until next is none"):
            break
    yield write_call("report", product=min(prices, key=prices.get))


def play_payment(told, prompt):
    cents, order = re.search(r"Charge (\d+) cents for order (\w+)", prompt).groups()
    client, secret = re.search(r'client is "(\S+)" with the client secret "(\w+)"', prompt).groups()
    webhook = re.search(r'webhook secret is "(\w+)"', prompt)[1]
    login = write_call("get_token", client=client, secret=secret, scope="payments.write")
    key = ', idempotency_key="mine"' if told("repeat the charge with the same key") else ""
    answer = "401"
    for _ in range(6):
        if "401" in answer:
            token = (yield login).split()[-1]
        answer = yield f'charge(token="{token}", order="{order}", cents={cents}{key})'
        if "booked." in answer and "200" in answer:
            break
    for event in re.findall(r"ev_\w+", (yield "read_webhooks()")):
        if not told("some are forged") or "valid" in (yield write_call("verify", event=event, secret=webhook)):
            yield write_call("acknowledge", event=event)


def play_migration(told, prompt):
    count = int(re.search(r"has (\d+) rows", prompt)[1])
    most = re.search(r"Copy at most (\d+) rows at a time", prompt)
    size = int(most[1]) if most else count
    for parent in re.findall(r"_id (\d+), rows", (yield "find_orphans()")):
        mended = told("add the missing parents with add_parent")
        yield write_call("add_parent", id=int(parent)) if mended else write_call("delete_rows", parent=int(parent))
    if not told("make the index only after the last copy"):
        yield "create_index()"
    for first in range(1, count + 1, size):
        yield write_call("copy_rows", first=first, last=min(first + size - 1, count))
    yield "create_index()"
    yield "switch()"


def play_batch(told, prompt):
    for name in re.findall(r"- (\S+):", (yield "list_files()")):
        seen = (yield write_call("peek", file=name)) if told("Peek at every file") else ""
        header, found = map(int, (re.search(r"(\d+) rows, (\d+) rows", seen) or re.match("(0)(0)", "00")).groups())
        options = {"encoding": "latin-1"} if "not UTF-8" in seen and told("the encoding latin-1") else {}
        most = re.search(r"more than (\d+) rows.*chunk_rows of at most (\d+)", prompt)
        if most and header > int(most[1]):
            options["chunk_rows"] = int(most[2])
        torn = found < header and told("put it into quarantine")
        yield write_call("quarantine", file=name) if torn else write_call("import_file", file=name, **options)
    yield "finish()"


def play_deployment(told, prompt):
    new = re.search(r"version (\S+) of the service", prompt)[1]
    fixed = re.search(r"The version (\S+) is a fixed", prompt)[1]
    slots = dict(re.findall(r"(blue|green) runs \S+ with (\d+) percent", (yield "status()")))
    live, idle = sorted(slots, key=lambda slot: -int(slots[slot]))
    slot = idle if told("never to the live one") else live
    if told("First migrate with the step expand"):
        yield 'migrate(step="expand")'
    if not told("Migrate with the step contract last"):
        yield 'migrate(step="contract")'
    for version in (new, fixed):
        answer = yield write_call("deploy", slot=slot, version=version)
        for _ in range(6):
            if not told("until it says healthy") or "healthy." in answer:
                break
            answer = yield write_call("health", slot=slot)
            answer = answer.replace("not healthy yet.", "")
        if not told("10 percent of the traffic first"):
            break
        answer = yield write_call("shift_traffic", slot=slot, percent=10)
        if float(re.search(r"; ([\d.]+) percent of", answer)[1]) <= 1:
            break
        yield write_call("shift_traffic", slot=slot, percent=0)
    yield write_call("shift_traffic", slot=slot, percent=100)
    yield 'migrate(step="contract")'


PLAYERS = dict(zip(JOBS, [play_login, play_shop, play_payment, play_migration, play_batch, play_deployment]))


def attempt(env: ScenariosEnv, task, lessons) -> tuple[bool, str]:
    """(solved, everything that was answered) of a player that is shown these lessons as the agent shows them."""
    words = {"original_query": task.query, "source_trajectory_id": "t", "outcome": "success", "label_source": "judge"}
    record = MemoryRecord(id="r", items=tuple(lessons), score=1.0, task_id="other", **words)
    agent = ActAgent(answer_format="")
    messages = agent.opening(env.reset(task), env.instructions, [Scored(record=record, score=1.0)] if lessons else [])
    prompt = "\n".join(message["content"] for message in messages)
    player = PLAYERS[task.type](lambda phrase: phrase in prompt, prompt)
    answers, action = [], next(player)
    for _ in range(env.max_steps):
        answer, _, done, _ = env.step(action)
        answers.append(answer)
        if done:
            break
        try:
            action = player.send(answer)
        except StopIteration:
            break
    return env.evaluate(None), "\n".join(answers)


def solved_by_job(env: ScenariosEnv, lessons_of) -> Counter:
    return Counter(task.type for task in env.tasks() if attempt(env, task, lessons_of(task.type))[0])


def test_gold_solves_every_job_in_the_steps_that_there_are():
    for seed in (0, 1):
        env = make(variants=5, seed=seed)
        for task in env.tasks():
            env.reset(task)
            actions = env.walkthrough()
            assert len(actions) <= env.max_steps
            results = [env.step(action) for action in actions]  # a step after the end would raise
            assert env.evaluate(None), task.id
            assert [done for *_, done, _ in results] == [False] * (len(actions) - 1) + [True]
            assert all(info["valid"] for *_, info in results)


def test_the_lessons_carry_over_to_every_variant_and_nothing_else_solves_the_jobs():
    env = make(variants=10)
    lessons = {task.type: lesson for task, lesson in env.lessons()}
    assert {task.id for task, _ in env.lessons()} == {f"scenarios/{job}/1" for job in JOBS}
    assert solved_by_job(env, lambda job: [lessons[job]]) == dict.fromkeys(JOBS, 10)
    naive = solved_by_job(env, lambda job: [])
    others = solved_by_job(env, lambda job: [lesson for name, lesson in lessons.items() if name != job])
    assert naive == {}
    assert others == naive, "a lesson of another job helps or harms"


def test_each_rule_of_a_lesson_is_needed(subtests):
    for job, rule in [(name, rule) for name, service in JOBS.items() for rule in service.rules]:
        with subtests.test(f"{job}: {rule}"):
            env = make(job, variants=10)
            [(_, lesson)] = env.lessons()
            part = replace(lesson, content=lesson.content.replace(JOBS[job].rules[rule], ""))
            assert solved_by_job(env, lambda job, part=part: [part])[job] < 10


def test_what_ends_a_job_states_a_rule_and_no_answer_that_differs_by_variant():
    env = make(variants=5)
    stated = Counter()
    for task in env.tasks():
        solved, answers = attempt(env, task, [])
        rules = [rule for rule in JOBS[task.type].rules.values() if rule in answers]
        stated[task.type] += len(rules)
        assert solved == (not rules)
    assert set(stated) == set(JOBS) and all(stated.values())


def test_a_lesson_names_nothing_of_a_variant():
    env = make(variants=10)
    shown = " ".join(lesson.text for _, lesson in env.lessons())
    for task in env.tasks():
        env.reset(task)
        for action in env.walkthrough():
            own = [value for value in parse_call(action)[2].values() if isinstance(value, str)]
            public = ("payments.write", "latin-1", "expand", "contract", "start")
            assert not [value for value in own if value not in public and value in shown], action


def test_variants_differ_and_a_seed_decides_them():
    one, again, other = make(variants=6), make(variants=6), make(variants=6, seed=1)
    told = [[env.reset(task) for task in env.tasks()] for env in (one, again, other)]
    assert told[0] == told[1]
    assert len(set(told[0])) == len(told[0])
    assert not set(told[0]) & set(told[2])
    assert one.describe() == again.describe() != other.describe()
    for job in JOBS:  # the traps come in different orders
        env = make(job, variants=20)
        orders = set()
        for task in env.tasks():
            env.reset(task)
            orders.add(tuple(action.partition("(")[0] for action in env.walkthrough()))
        assert len(orders) > 1, job


HOSTILE = {
    **ODD_ACTIONS,
    "code": "__import__('os').system('true')",
    "nested": "login(user=login(user=1), password=[1], csrf={})",
    "deep": "login(user=" + "(" * 900 + ")" * 900 + ")",
    "long text": f'login(user="{"x" * 5000}", password="", csrf="")',
    "NUL": 'login(user="\x00", password="\x00", csrf="\x00")',
    "NUL in a name": "log\x00in()",
    "big number": "wait(seconds=99999999999999999999)",
    "negative": "wait(seconds=-5)",
    "twice": "wait(seconds=1, seconds=2)",
    "too many": "wait(5, 6)",
    "place after name": "wait(seconds=5, 6)",
    "twice in two ways": "wait(5, seconds=5)",
    "private": "_run()",
    "method": "walkthrough()",
    "stars": "wait(**{'seconds': 1})",
    "unknown argument": "wait(seconds=1, minutes=2)",
    "unclosed": 'wait(seconds="',
}


def test_a_hostile_action_is_an_observation_and_changes_nothing(subtests):
    for name, action in HOSTILE.items():
        with subtests.test(name):
            env = make(variants=1)
            for task in env.tasks():
                env.reset(task)
                answer, reward, done, info = env.step(action)
                assert (reward, done, info["won"]) == (0.0, False, False)
                assert answer and len(answer) < 1500 and "\x00" not in answer
                for gold in env.walkthrough():
                    env.step(gold)
                assert env.evaluate(None)


@pytest.mark.parametrize("value", ["", "'; DROP TABLE orders; --\x00", "é" * 300, 0, 999_999_999])
def test_wrong_types_and_odd_values_in_every_argument_are_answered(value):
    env = make(variants=1)
    for task in env.tasks():
        env.reset(task)
        for name, rest in re.findall(r"^([a-z_]+)\((.*)\) - ", env.service(task).job.manual(), re.MULTILINE):
            env.reset(task)
            keys = re.findall(r"(\w+)=", rest)
            answer, _, _, info = env.step(write_call(name, **dict.fromkeys(keys, value)))
            kinds = {str: "TEXT", int: "NUMBER"}
            assert answer and not info["won"]
            assert info["valid"] == (re.findall(r"=(\w+)", rest) == [kinds[type(value)]] * len(keys))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("open_page()", ("open_page", [], {})),
        ("wait( seconds = 5 ):", ("wait", [], {"seconds": 5})),
        ('f("a", 5, b="c")', ("f", ["a", 5], {"b": "c"})),
        ("""f(a="it's (a, b=1)", b='"', c=007,)""", ("f", [], {"a": "it's (a, b=1)", "b": '"', "c": 7})),
        (r'f(a="\frac{1}\n")', ("f", [], {"a": r"\frac{1}\n"})),
    ],
)
def test_a_call_is_read(text, read):
    assert parse_call(text) == read


def test_what_is_no_call_is_told_its_form():
    for text in ("wait", "wait()x", "f(a=b)", "f(a=True)", "f(a='1' b='2')", "f(,)", "F()", "f(a=1.5)"):
        with pytest.raises(BadCall, match="Write one call on one line"):
            parse_call(text)


def test_a_random_player_can_play_every_job_and_seldom_solves_one():
    env, solved = make(variants=5), 0
    agent = RandomAgent(answer_format="")
    for task in env.tasks():
        env.reset(task)
        respond = agent.begin(env, None, task.id)
        for number in range(env.max_steps):
            action = respond([], 0, 7919 * number + 31).text
            _, _, done, info = env.step(action)
            assert info["valid"], action
            if done:
                break
        solved += env.evaluate(None)
    assert solved <= 6


def test_nothing_waits_for_real_and_nothing_touches_disk_or_network(monkeypatch, tmp_path):
    def refuse(*_args, **_keys):
        raise AssertionError("left the process")

    monkeypatch.setattr(time, "sleep", refuse)
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.chdir(tmp_path)
    env = make(variants=1)
    for task in env.tasks():
        env.reset(task)
        for action in env.walkthrough():
            env.step(action)
        assert env.evaluate(None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keys", [{"jobs": []}, {"jobs": ["login", "login"]}, {"jobs": ["logn"]}, {"variants": 0}])
def test_a_wrong_key_is_named(keys):
    with pytest.raises(UserError, match=f"env.{next(iter(keys))}="):
        ScenariosEnv(instructions="", max_steps=9, **{"jobs": ["login"], **keys})


def test_the_whole_program_plays_them(here):
    words = ("env=scenarios", "env.variants=1", "agent=gold", "workflow=vanilla", "llm=scripted", "embedder=hashing")
    run_dir, headline = here(*words)
    assert headline == 1.0
    rows = read_rows(run_dir)
    assert [(row["task_type"], row["status"]) for row in rows] == [(job, "success") for job in JOBS]


def test_a_build_for_the_case_that_the_first_is_bad_cannot_be_delivered_instead_of_a_good_one():
    env, seen = make("deployment", variants=10), Counter()
    for task in env.tasks():
        env.reset(task)
        asked = re.search(r"version (\S+) of", task.query)[1]
        for action in env.walkthrough():  # the same way, with the other build from the start
            answer, *_, done, _ = env.step(action.replace(asked, asked[:-1] + "1"))
            seen["refused"] += "403 Forbidden" in answer
            if done:
                break
        assert not env.evaluate(None)
    assert seen["refused"] >= 10


def test_a_wrong_password_states_no_rule_about_tokens():
    env = make("login", variants=5)
    for task in env.tasks():
        env.reset(task)
        user, done = re.search(r"as (\w+)\.", task.query)[1], False
        while not done:
            answer = env.step("open_page()")[0]
            if token := re.search(r'csrf-token" content="(\w+)', answer):
                answer, _, done, _ = env.step(write_call("login", user=user, password="wrong", csrf=token[1]))
            if wait := re.search(r"Retry-After: (\d+)", answer):
                env.step(f"wait(seconds={wait[1]})")
        assert "423 Locked" in answer and "The rule here" not in answer


def test_the_cheapest_product_may_be_written_in_other_capitals():
    env = make("shop", variants=3)
    for task in env.tasks():
        env.reset(task)
        *reading, report = env.walkthrough()
        for action in reading:
            env.step(action)
        assert env.step(write_call("report", product=parse_call(report)[2]["product"].upper()))[3]["won"]
