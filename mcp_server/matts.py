"""MaTTS over MCP (memory-aware test-time scaling, section 3.3 of the paper) as prompts: docs/matts_playbook.md.

The server is the memory alone: the agent, or a program around it, makes the attempts. scripts/matts_controller.py does.
"""

from __future__ import annotations

from mcp_server.texts import quoted

LEARN = (
    "call contrast_attempts with query = the task, pattern = {pattern!r} and {what} (each a trajectory of steps with "
    "role and content; success_signal only where you know it). Without that tool, or where it says that no model is "
    "configured, compare them yourself and call save_lesson once for each thing you learned: what told the good from "
    "the bad, when it holds, and why. No names, secrets or values that belong to this task alone."
)


def matts_parallel(task: str, k: str = "3") -> str:
    """The prompt for parallel scaling with self-contrast: k attempts apart, one answer, lessons from all together."""
    return (
        f"{quoted(task)}\n\nSolve this task {_number(k, 2, 3)} times and give the best result.\n"
        "1. Call retrieve_memory once with this task as the query; every attempt gets the same lessons.\n"
        "2. Make the attempts apart from each other: a subagent or a fresh conversation each, in a working copy of its "
        "own where files are changed. None sees another. Let them differ: another approach, or a temperature above 0. "
        "Keep the steps of each: what was said and done, and what came back.\n"
        f"3. When all are over, {LEARN.format(pattern='parallel', what='all attempts')}\n"
        "4. Answer with the attempt that its result names as `best` (the first is 1), or with the one you judge best: "
        "how far it got, how sound it is, whether it went in circles, how grave its errors were.\n"
        "5. mark_helpful or mark_harmful with the id of each lesson that you used."
    )


def matts_sequential(task: str, rounds: str = "1") -> str:
    """The prompt for sequential scaling with self-refinement: an attempt, checks, lessons from the corrections."""
    return (
        f"{quoted(task)}\n\nSolve this task, then check and revise your work {_number(rounds, 1, 1)} times.\n"
        "1. Call retrieve_memory with this task as the query and use the lessons that fit.\n"
        "2. Solve the task, but do not hand the result in yet. Keep the steps.\n"
        "3. Check it as if it were another's: did you work with the right parts of the problem, does the result do "
        "what is asked for, is every step sound? Correct what is wrong, keep what holds, state the whole result anew. "
        "Repeat this as often as asked. Stop before that when a check has changed nothing.\n"
        f"4. Then {LEARN.format(pattern='sequential', what='the first attempt and each revision, in order')}"
        "\n5. Hand in the last result. mark_helpful or mark_harmful with the id of each lesson that you used."
    )


def _number(text: str, least: int, otherwise: int) -> int:
    """A prompt's argument, which is always a text, as a number up to 20; `otherwise` where it is none.

    The SDK tells a client of an error in a prompt that there was one, not which: so there is none.
    """
    return int(text) if text.strip() in {str(n) for n in range(least, 21)} else otherwise
