"""How much of the reward is gold: from matched evaluations to the measures of a run and its verdict."""

from assay.hacking.matched import MatchedCheckpoint
from assay.hacking.measure import Hacking, measure

__all__ = ["Hacking", "MatchedCheckpoint", "measure"]
