"""The improver: a search that the policy guides, from the best of several starts (`classical.constructions`), and on large graphs level by level.

Reading order: `planner` (its stages), `odds` (move probabilities from the policy), `stretch` (list schedules of a part), `moves`
(proposals of the search), `search` (the guided search, the walk after it, and training), `compiled_revisit` and `compiled_loop` (the
guided search compiled), `multilevel` (large graphs). Schedules by the policy: `builds`, `deciding` (one unit after the other),
`decision_features` and `decision_tables` (what the policy sees), `teaching` (decisions of better placements, for training).
Where evaluations are executions: `execution` (searches in the simulator, then the choice of the
placement to execute next), `correction` (expected seconds of an execution).
"""

__all__: list[str] = []
