"""What a model that grades an answer comes to: the words of its reply that conclude, and those that do not."""

from envs.web.judgement import concludes
from envs.web.webarena_original import SAME, _says

# True: correct; False: incorrect or only partially so; None: it concludes nothing
CORRECT = [
    (True, "The wording differs, but that is not incorrect. Judgement: correct"),
    (True, "Options are correct/incorrect/partially correct. My verdict: **correct**"),
    (True, "First I thought: incorrect, as the colon is missing. But it means the same.\n\nConclusion: correct"),
    (False, "At first sight correct, but the status is another one. Judgement: incorrect"),
    (True, "correct"),
    (False, "wrong"),
    (True, "**Correct**"),
    (True, "Correct. The wording is not incorrect in any way."),
    (True, "Correct - the student's answer is not incorrect."),
    (False, "The answer isn't correct."),
    (True, "The answer is not wrong."),
    (False, "It cannot be considered correct."),
    (False, "The answer is mostly correct."),
    (True, "The correct answer is 17; the student says 17.\n\nJudgement: correct"),
    (True, '{"judgement": "correct"}'),
    (False, '{"judgement": "incorrect", "reason": "the correct answer is 5"}'),
    (True, '{"reason": "not incorrect", "verdict": "correct"}'),
    (True, '{"correct": true}'),
    (False, '{"correct": false, "explanation": "the correct value is 5"}'),
    (True, "## Judgement\n\ncorrect"),
    (False, "I conclude that the answer is incorrect, although the name is correct."),
    (True, "The task is to say whether the answer is correct or incorrect. The answer is correct."),
    (None, ""),
    (None, "The student correctly noted the order."),
    (None, "correct/incorrect/partially correct"),
    (False, "The student does not give the correct answer."),
    (True, "Judgement - correct"),
    (True, "Yes, correct."),
    (False, "It is neither correct nor complete."),
    (True, "Judgement: correct, though some would call it incorrect."),
    (False, "The student's answer is partly correct."),
    (False, "Half correct"),
    (True, "Grade: ✅ Correct"),
    (True, "I'd say this is correct rather than incorrect."),
    (True, "It's correct, not incorrect."),
    (True, "There is nothing incorrect about the answer, so I judge it correct."),
    (False, "While the student's first order is correct, the second is missing. So it is partially correct."),
    (None, "The answer would be correct if it named the status."),
    (False, "I don't think the answer is correct."),
    (False, "This is far from correct."),
    (True, '{"result": "correct", "confidence": 0.9}'),
    (True, "Correct!\n\nExplanation: the reference says the same; nothing is wrong."),
    (True, "1. The order number matches.\n2. The status matches.\n\n**Final judgement: correct**"),
    (True, "Is the answer correct, incorrect or partially correct? It is correct."),
    (True, "It can hardly be called incorrect: correct."),
    (False, "In conclusion, the student's response is incorrect because the correct one names 17."),
    (True, "Judgement:\n\n> correct"),
    (False, "not the correct answer"),
    (False, "Neither partially correct nor correct: incorrect"),
    (True, 'The judgement would be "correct".'),
    (False, "\\boxed{\\text{incorrect}}"),
]
THE_SAME = [
    (True, "Other words, no different meaning: [same]"),
    (False, "Not the same reason: [different]"),
    (False, "[different]"),
    (False, "They are not the same."),
    (True, "Should I return [same] or [different]? Both say that the item is gone. same"),
    (False, "The report is about something else. [different]"),
    (True, "Report_1 refers to the same reason as Reason_1."),
    (False, "Report_1 refers to a different reason."),
]


def test_whether_a_reply_concludes_that_an_answer_is_correct(subtests):
    for wanted, reply in CORRECT:
        with subtests.test(reply=reply):
            assert concludes(reply, "correct", ("partially correct", "incorrect")) is wanted


def test_whether_a_reply_concludes_that_two_reasons_are_the_same(subtests):
    for wanted, reply in THE_SAME:
        with subtests.test(reply=reply):
            assert concludes(reply, "same", ("different",)) is wanted


def test_a_reply_that_concludes_nothing_counts_as_no():
    values = {"question": "Which orders are open?", "reference": "17", "answer": "17"}
    for reply, right in (("Hm.", False), ("", False), ("That is not incorrect. Judgement: correct", True)):
        assert _says(lambda question, reply=reply: reply, SAME, values, "correct", ("incorrect",)) is right
