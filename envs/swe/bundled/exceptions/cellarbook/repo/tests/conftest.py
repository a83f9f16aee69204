import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cellarbook import Cellar  # noqa: E402


@pytest.fixture
def cellar():
    cellar = Cellar()
    cellar.add_tank("T1", capacity=5000, litres=3200, wine="Riesling 2023")
    cellar.add_tank("T2", capacity=2000)
    cellar.add_tank("T3", capacity=900, litres=600, wine="Silvaner 2023")
    return cellar
