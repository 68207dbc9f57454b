"""The tools are scripts, so the tests import them as the scripts import each other: from their own folder."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
