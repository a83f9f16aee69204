"""The datasets by name: where each comes from and what must be true of its files. Data, no behaviour.

The revisions are commits of the Hugging Face repositories; the sha256 are of the official files themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class FileSpec:
    """A file that a user may drop into single_turn_bench/, under any of the names. count None: any number of rows."""

    names: tuple[str, ...]
    count: int | None = None
    sha256: dict[str, str] = field(default_factory=dict)  # by name, for names that only the official file bears


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """A dataset on the Hugging Face hub. `categories` keeps those rows only; all of them when empty."""

    repo: str
    revision: str
    config: str | None = None
    split: str = "test"
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """Several files are parts of one dataset. shuffled: its authors show the options in an order drawn at random."""

    name: str
    files: tuple[FileSpec, ...]
    hub: HubSource | None = None
    shuffled: bool = False

    @property
    def count(self) -> int | None:
        """Rows of all files together; None: any number."""
        return sum(file.count or 0 for file in self.files) or None


MATH500_SHA256 = "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"
GSM8K_SHA256 = "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"
MMLU_PRO = {"economics": 844, "engineering": 969, "philosophy": 499}

DATASETS = (
    DatasetSpec(
        name="math500",
        files=(
            FileSpec(
                names=("MATH-500.jsonl", "math500_test.jsonl"),
                count=500,
                sha256={"math500_test.jsonl": MATH500_SHA256},
            ),
        ),
        hub=HubSource(repo="HuggingFaceH4/MATH-500", revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be"),
    ),
    DatasetSpec(
        name="aime24",
        files=(FileSpec(names=("AIME24-30.jsonl", "aime2024.jsonl"), count=30),),
        hub=HubSource(
            repo="HuggingFaceH4/aime_2024", revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a", split="train"
        ),
    ),
    DatasetSpec(
        name="aime25",
        files=(FileSpec(names=("AIME25-30.jsonl", "aime2025.jsonl"), count=30),),
        hub=HubSource(repo="yentinglin/aime_2025", revision="6f71d77b0b89b9dabe07ab466c51df33f514df7f", split="train"),
    ),
    DatasetSpec(
        name="gsm8k",
        files=(
            FileSpec(
                names=("GSM8K-1319.jsonl", "gsm8k_test.jsonl"),
                count=1319,
                sha256={"gsm8k_test.jsonl": GSM8K_SHA256},
            ),
        ),
        hub=HubSource(repo="openai/gsm8k", config="main", revision="cc7b047b6e5bb11b4f1af84efc572db110a51b3c"),
    ),
    DatasetSpec(
        name="gpqa_diamond",
        files=(FileSpec(names=("GPQA-Diamond-198.jsonl", "gpqa.zip", "dataset.zip"), count=198),),
        hub=HubSource(
            repo="Idavidrein/gpqa",
            config="gpqa_diamond",
            revision="633f5ee89ab8ad4522a9f850766b73f62147ffdd",
            split="train",
        ),
        shuffled=True,
    ),
    DatasetSpec(
        name="mmlu_pro",
        files=tuple(
            FileSpec(names=(f"MMLU-Pro-{subject}-{count}.jsonl",), count=count) for subject, count in MMLU_PRO.items()
        ),
        hub=HubSource(
            repo="TIGER-Lab/MMLU-Pro",
            revision="b189ec765aa7ed75c8acfea42df31fdae71f97be",
            categories=tuple(MMLU_PRO),
        ),
    ),
    DatasetSpec(name="warmup", files=(FileSpec(names=("warmup.jsonl",)),)),
)
SPECS = {spec.name: spec for spec in DATASETS}

# The official GPQA archive; its password is published beside it, to keep the questions out of crawled text.
GPQA_ZIP_URL = "https://raw.githubusercontent.com/idavidrein/gpqa/56686c06f5e19865c153de0fdb11be3890014df7/dataset.zip"
GPQA_ZIP_SHA256 = "461ae7329f15a3e35f8184d2dac24b990f34fdf12f366ca4062d8e6638cd08dc"
GPQA_ZIP_PASSWORD = b"deserted-untie-orchid"
GPQA_ZIP_MEMBER = "dataset/gpqa_diamond.csv"
