"""Answers in other languages, digits and signs."""

import pytest

from single_turn_bench.answers import gold_answer
from single_turn_bench.choice import find_choice
from single_turn_bench.equivalence import grade_response, shared_grader
from single_turn_bench.languages import MAX_READ, in_english
from single_turn_bench.prose import is_bare
from single_turn_bench.verbatim import verbatim_answer

LETTERS = {
    "C": """
答案是C。
正确答案是C，因为A和B都不对。
所以选C。
应选择C，而不是D。
因此，正确选项是 C。选项 D 是错误的。
答案：C
答案不是A，而是C。
综上所述，答案是**C**。
正确的是C，D不正确。
选项C是正确的，其他都错。
答えはCです。
正解はCです。Dは間違いです。
答えはAではなく、Cです。
選択肢Cを選びます。答え：C
정답은 C입니다.
정답은 B가 아니라 C입니다.
C가 정답입니다.
따라서, 정답은 'C'입니다.
La respuesta es C, porque B no se cumple.
La respuesta no es B sino C.
C es la respuesta correcta.
La opción D es incorrecta. La opción C es correcta.
Elijo la C. La A y la B son falsas.
La réponse est C. L'option D est fausse.
C'est la réponse C, et non la B.
La réponse n'est ni A ni B, mais C.
Die richtige Antwort ist C, nicht D.
C ist die richtige Antwort, A und B sind falsch.
Правильный ответ: C. Вариант D неверен.
Ответ: С
A resposta correta é a C.
C é a resposta correta. A opção D está errada
La risposta è C.
Cevap: C. D yanlış.
Doğru cevap C'dir.
सही उत्तर C है।
उत्तर B नहीं, बल्कि C है।
الإجابة الصحيحة هي C.
الإجابة: ج
উত্তর হল C
Jawaban yang benar adalah C.
Đáp án là C.
The answer is Ｃ.
The answer is （C）.
The answer is Ⓒ.
The answer is 𝐂.
The correct answer is C，not D。
Antwort: C
""",
    "B": """
The Spanish phrase "la respuesta es C" is only an example; the answer is B.
The answer is B. In German one would say "Die Antwort ist C".
Vitamina C es importante. La respuesta es B.
最初我认为答案是A，但后来发现答案是B。
电容C的电容为5F，所以答案是B。
""",
    None: """
答案不是B。
答案取决于情况。
No sé la respuesta.
我不知道。
""",
}
NUMBERS = {
    "42": r"""
答案是 42。
所以总共有 42 个苹果。
答案是 42 个苹果，分给 7 个人。
答案是 6×7=42。
答案是 \boxed{42}。
共 42 个
答えは42です。
答えは20ではなく42です。
정답은 42입니다.
La respuesta es 42.
La respuesta es 42 manzanas, ya que 40 + 2 = 42.
La respuesta no es 20, sino 42.
Die Antwort ist 42 Äpfel.
42 ist die Antwort.
Ответ: 42 яблока.
उत्तर ४२ है।
الإجابة هي ٤٢
উত্তর হল ৪২
คำตอบคือ ๔๒
\boxed{４２}
42\text{ 元}
""",
    "-7": r"""
Die Antwort ist −7.
La réponse est –7
答案是－7。
The answer is ‑7.
\boxed{−7}
""",
    "3.5": """
La respuesta es 3,5 km.
Die Antwort ist 3,5.
الإجابة هي ٣٫٥
""",
    "2, 3": """
Las respuestas son 2 y 3.
Ответы: 2 и 3
答案是 2 和 3。
""",
    "(3,4)": """
La respuesta es (3, 4).
""",
    "x=3": """
Die Lösung ist x = 3.
""",
    "3x+2": """
La respuesta es 3x + 2.
""",
    "70000": """
Die Antwort ist 70.000 Euro.
A resposta é R$ 70.000,00.
Ответ: 70 000.
""",
    "1234567": r"""
\boxed{12,34,567}
The total is 12,34,567 rupees.
कुल १२,३४,५६७ रुपये
\boxed{1'234'567}
\boxed{1.234.567}
""",
    "Evelyn": """
La respuesta es Evelyn.
答案是 Evelyn。
""",
}
WRONG = {
    "41": """
答案是 42，不是 41。
Die Antwort ist 42 statt 41.
La respuesta no es 41, sino 42.
""",
    "7": """
答案是 42 个苹果，分给 7 个人。
The answer is 9. In the German text it reads "Die Antwort ist 7".
""",
    "1234": """
The answer is 1.234.
""",
    "1234567": r"""
\boxed{(12,34,567)}
""",
}


@pytest.fixture(scope="module")
def grader():
    return shared_grader()


def test_a_letter_that_is_stated_in_another_language():
    rows = [(letter, text) for letter, texts in LETTERS.items() for text in texts.split("\n")[1:-1]]
    found = [(text, letter, find_choice(text, 4).answer) for letter, text in rows]
    assert [each for each in found if each[1] != each[2]] == []


def test_a_number_that_is_stated_in_another_language_and_in_other_digits(grader):
    for right, table in ((True, NUMBERS), (False, WRONG)):
        rows = [(gold, text) for gold, texts in table.items() for text in texts.split("\n")[1:-1]]
        graded = [(text, gold, grade_response(text, gold, grader)) for gold, text in rows]
        assert [each for each in graded if each[2] is not right] == []


def test_text_that_states_nothing_in_another_language_is_left_as_it_is():
    for text in ("The answer is (C), not D.", "It is 3 m/s, so A is correct.", "Answer: la respuesta", "", "x" * 50):
        assert in_english(text) == text


def test_a_number_with_a_foreign_word_is_no_answer_by_itself():
    assert [is_bare(line) for line in ("12 km", "12 яблок", "5 个", "Hund, Katze")] == [True, False, False, True]


def test_a_gold_answer_may_be_stated_in_another_language_too():
    assert gold_answer("所以共有 42 个。答案是 42 个。") == "42"
    assert gold_answer("Evelyn") == "Evelyn"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("答案：狗、猫", "狗、猫"),
        ("La respuesta es: perro, gato", "perro, gato"),
        ("Die Antwort ist **Hund, Katze**.", "Hund, Katze"),
        ("Ответ: собака", "собака"),
        ("정답: 개", "개"),
    ],
)
def test_an_answer_that_is_read_as_written_is_found_in_other_languages(text, answer):
    assert verbatim_answer(text).answer == answer


def test_a_long_foreign_text_is_read_from_its_end():
    assert find_choice("答案是A。" * MAX_READ + "答案是C。", 4).answer == "C"
