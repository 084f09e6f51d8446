"""The two lists of programs, importable from the test modules beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
