"""workflow=reasoningbank: the base loop, unchanged."""

from workflows.base import Workflow

ReasoningBank = Workflow
