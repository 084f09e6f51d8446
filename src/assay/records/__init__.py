"""Records: scores, rollouts, findings, the run folder, and one reader per foreign log format."""
