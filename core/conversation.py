"""An attempt as the conversation that its agent's model had, message by message."""

from __future__ import annotations

from core.reply_marks import own_turn
from core.types import Message, Step, Trajectory

NO_REPLY = "(no reply)"  # providers refuse an empty turn in a conversation


def conversation(trajectory: Trajectory) -> list[Message]:
    """Every message of an attempt."""
    return [*trajectory.opening, *(message for step in trajectory.steps for message in turns(step))]


def turns(step: Step) -> list[Message]:
    """A step as two messages of the conversation; a token that ends a turn would end it in the next prompt, too."""
    reply = own_turn(step.text) or NO_REPLY
    return [{"role": "assistant", "content": reply}, {"role": "user", "content": step.observation}]
