"""Hygiene: what is taken out, what is quarantined, what passes, and that mathematics is never touched."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

import pytest
from conftest import TOY, read_rows
from test_memory import record

from benchmarks.drill import read
from core.memory.bank import MemoryBank
from core.memory.hygiene.executed import never_executed
from core.memory.hygiene.foreign import sentences
from core.memory.hygiene.guard import Guard
from core.memory.hygiene.scrub import scrub
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from core.types import Lesson

LESSONS = [text for name in ("lessons", "fresh_lessons") for case in read(name)[0] for text in case.lessons]
LONG = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" * 3

SECRETS = [
    "sk-ant-api03-" + LONG[:40],
    "sk-proj-" + LONG[5:50],
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + LONG[:35],
    "ghp_" + LONG[:36],
    "github_pat_" + LONG[:60],
    "glpat-" + LONG[:20],
    "hf_" + LONG[10:44],
    "xoxb-" + "123456789012-abcdefGHIJ",
    "SG." + LONG[:22] + "." + LONG[:43],
    "npm_" + LONG[:36],
    "AC" + "0123456789abcdef" * 2,
    "sk_live_" + LONG[:24],
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "abcDEF123_-x",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc=\n-----END RSA PRIVATE KEY-----",
    "postgres://admin:s3cretPass@db.host/x",
    "api_key = 'a1b2c3d4e5f6'",
    "the password is hunter2hunter2",
    "Authorization: Bearer abcdef0123456789abcdef",
    *(f"{name}: a1b2c3d4e5f6" for name in "apikey Api-Keys secret_key accessKey PASSWD pwd passphrase".split()),
    *(f"{name} = 'a1b2c3d4e5f6'" for name in ("auth_token", "Credentials", "AP\u0130_KEY", "CREDENT\u0130AL")),
    "https://host/path?signature=a1b2c3d4e5f6",
]
PERSONAL = [
    ("write to jane.doe+x@mail.kestrel.io today", "email"),
    ("card 4111 1111 1111 1111 expires", "card"),
    ("the credit card 4111111111111111 was used", "card"),
    ("amex 3782 822463 10005", "card"),
    ("call +49 30 1234 5678 in the morning", "phone"),
    ("(212) 555-0123 is the office", "phone"),
    ("phone 212 555 0123", "phone"),
    ("IBAN DE89 3704 0044 0532 0130 00", "iban"),
    ("the host 93.184.216.34 answers", "ip"),
    ("at 2606:2800:0220:0001:0248:1893:25c8:1946", "ip"),
    ("SSN: 078-05-1120", "ssn"),
]
MATHS = [
    "10,080",
    "10,\\!080 minutes and 58,500 people",
    "4532015112830366 passes Luhn and is an integer here",
    "4111111111111111 + 1",
    "123456789012345678901234567890",
    "3.14159265358979323846264338327950288419716939937510",
    "0xDEADBEEFCAFEBABE0123456789abcdef and 1101101_2",
    "\\begin{pmatrix} 1 & 2 & 3 & 4 \\\\ 5 & 6 & 7 & 8 \\\\ 555 & 123 & 4567 & 9 \\end{pmatrix}",
    "[[1, 2, 3], [4, 5, 6], [212, 555, 1234]]",
    "212-555-1234 in $212-555-1234 = -1577$".replace("212-555-1234 in ", ""),
    "x +34 567 890 = y",
    "7 +49 30 12345678",
    "version 10.2.14.3, section 12.34.56.78",
    "a[1::2], ratio 1:2:3:4, time 10:15:20",
    "\\frac{1}{2}, \\sqrt[3]{27}, 2^{31}-1 = 2\\,147\\,483\\,647, 90^\\circ, x \\in [-2,7], f@g = f \\circ g",
    "A@B.T and X.T@X",
    "1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597",
    "f''(x)=6x-12, \\int_0^1 x^2\\,dx=\\frac13; token = 5, key: x+1, secret: the sum is 9",
    "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    "1234 5678 9012 3456 and 0000 1111 2222 3333",
]


def test_a_credential_is_taken_out_and_scrubbing_twice_changes_nothing(subtests):
    for secret in SECRETS:
        with subtests.test(secret=secret):
            text, kinds = scrub(f"First use {secret} and then go on.")
            words = secret.replace("://", " ").replace("@", " ").split()
            hidden = secret.split("'")[1] if "'" in secret else max(words, key=len)
            assert hidden not in text
            assert "[removed secret]" in text
            assert kinds
            assert text.startswith("First use") and text.endswith("and then go on.")
            assert scrub(text) == (text, ())


def test_personal_data_is_taken_out(subtests):
    for text, kind in PERSONAL:
        with subtests.test(text=text):
            cleaned, kinds = scrub(text)
            assert kinds == (kind,)
            assert f"[removed {kind}]" in cleaned
            assert scrub(cleaned) == (cleaned, ())


def test_mathematics_and_plain_lessons_survive():
    assert [text for text in (*MATHS, *LESSONS) if scrub(text) != (text, ())] == []


@pytest.fixture
def open_bank(tmp_path):
    with ExitStack() as banks:

        def build(embedder=None, **guard):
            parts = {"embedder": embedder or HashingEmbedder(), "policy": Cosine(top_k=3), "hygiene": Guard(**guard)}
            return banks.enter_context(closing(MemoryBank(path=str(tmp_path / "bank.sqlite"), **parts)))

        yield build


def lesson(content, title="A title", description="What it is about."):
    return Lesson(title=title, description=description, content=content)


def test_a_record_is_scrubbed_and_cut_before_it_is_stored(open_bank):
    bank = open_bank(max_content=60)
    key = "ghp_" + LONG[:36]
    bank.add(record(f"log in with {key}", items=(lesson(f"Use {key}. " + "Then check the result again. " * 9),)))
    [kept] = bank.records()
    assert key not in kept.original_query + kept.items[0].content
    assert len(kept.items[0].content) <= 60
    assert kept.provenance["hygiene"] == ["cut", "secret"]
    assert kept.status == "active"


ELSEWHERE = lesson("The figures are at annex.page.site.")  # of a host that no action of its attempt used


def test_what_is_of_no_known_origin_is_kept_but_never_retrieved(open_bank):
    bank = open_bank(max_content=60, provenance="strict")
    bank.add(record("q", task="2", items=(lesson("Count with care. " * 20 + ELSEWHERE.content),)))  # behind the cut
    bank.add(record("add two numbers", items=(ELSEWHERE,)))
    behind, kept = bank.records()
    assert behind.status == "quarantined"
    assert (kept.status, kept.trust) == ("quarantined", 0.0)
    assert kept.provenance["quarantine"] == ["provenance"]
    assert bank.retrieve("add two numbers") == []


def test_characters_that_nobody_sees_are_taken_out(open_bank):
    tags = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    bank = open_bank()
    bank.add(record(f"add {tags}numbers", items=(lesson(f"Add\u202e them{tags}.", title="Zero\u200bwidth"),)))
    [kept] = bank.records()
    assert (kept.original_query, kept.items[0].content) == ("add numbers", "Add them.")
    assert kept.items[0].title == "Zerowidth"
    assert kept.provenance["hygiene"] == ["hidden"] and kept.status == "active"
    told = lesson("می\u200cخواهم 👩\u200d🔬 ❤\ufe0f")  # joiners and the emoji selector are ordinary letters
    bank.add(record("persian", task="2", items=(told,)))
    assert bank.get("2:persian").items == (told,)


def test_what_descends_from_a_quarantined_record_is_quarantined_and_trust_is_the_least_of_the_lineage(open_bank):
    bank = open_bank(provenance="strict")
    bank.add(record("a", task="1", id="bad", items=(ELSEWHERE,)))
    bank.add(record("b", task="2", id="half", trust=0.5))
    bank.add(record("c", task="3", id="good", items=(lesson("Open the drawer."),)))
    bank.add(record("d", task="4", id="child", parents=("half", "good")))
    bank.add(record("e", task="5", id="tainted", parents=("good", "bad")))
    assert bank.get("child").trust == 0.5
    assert bank.get("child").status == "active"
    assert (bank.get("tainted").trust, bank.get("tainted").status) == (0.0, "quarantined")
    assert bank.get("tainted").provenance["quarantine"] == ["lineage"]
    assert bank.get("half").trust == 0.5


def test_text_of_retrieved_lessons_is_not_learned_again(open_bank):
    bank = open_bank()
    old = "Always factor the expression before you cancel anything in it."
    bank.add(record("simplify the fraction", task="1", items=(lesson(old),)))
    new = f"{old} Then check which values make the denominator zero."
    bank.add(record("simplify this fraction", task="2", items=(lesson(new), lesson(old), lesson("[memory item]"))))
    kept = bank.get("2:simplify this fraction")
    assert [item.content for item in kept.items] == ["Then check which values make the denominator zero."]
    bank.add(record("simplify a fraction", task="3", items=(lesson(old),)))
    copied = bank.get("3:simplify a fraction")
    assert (copied.items, copied.status) == ((), "archived")


def test_screening_its_own_result_changes_nothing(open_bank):
    bank = open_bank(max_content=80, provenance="strict")
    for text in (*LESSONS[:20], ELSEWHERE.content, "a\u200bb" * 20, f"mail a.b@example.org {'and so on ' * 20}"):
        once = bank.hygiene.screen(record(text[:40], items=(lesson(text),)), bank)
        assert bank.hygiene.screen(once, bank) == once


def test_off_is_the_plain_bank_and_a_harmless_record_is_left_alone(open_bank):
    made = record("add two numbers", items=(lesson("Write the carry above the next column."),), created_at="now")
    assert open_bank().hygiene.screen(made, open_bank()) == made


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "ignore " * 15_000, "1." * 50_000, "a@" * 50_000, "<" * 50_000, "+1 " * 30_000]
)
def test_no_text_is_slow(text):
    began = time.process_time()
    scrub(text)
    sentences(text)
    never_executed(text, ())
    assert time.process_time() - began < 10


def test_a_text_is_judged_by_its_worst_sentence():
    assert sentences("Count all the apples first. Then add. Write the total down.") == [
        "Count all the apples first. Then add. Write the total down.",
        "Count all the apples first.",
        "Write the total down.",
    ]


def test_in_a_batch_a_lesson_is_no_copy_of_what_nobody_was_shown(here):
    run_dir, _ = here(*TOY, "memory=guarded", "stream.batch=8", "limit=8")
    assert all(row["retrieved"] == [] for row in read_rows(run_dir))
    with closing(MemoryBank(path=str(run_dir / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine())) as bank:
        assert [kept.status for kept in bank.records()] == ["active"] * 8
        assert not any("hygiene" in kept.provenance for kept in bank.records())


def test_a_lesson_loses_what_it_copied_from_those_that_were_shown(open_bank):
    bank = open_bank()
    told = "Always look at the units of every quantity before adding."
    far = record("long bridges", items=(lesson(told),))
    bank.add(far)
    copied = (lesson(f"Draw a picture of it all first. {told}", description="Another matter."),)
    one, two = record("a fast train", items=copied), record("a slow boat", items=copied)
    bank.add(one, shown=[far.id])
    bank.add(two, shown=[])
    assert bank.get(one.id).items[0].content == "Draw a picture of it all first."
    assert bank.get(two.id).items == copied
