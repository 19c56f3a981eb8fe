"""The improver where evaluations are executions: simulate a lot, execute what is promising, correct the simulator, repeat.

Reading order: `rehearsal` (placements that are good in the simulator), `candidates` (what of a placement tells how long it
takes), `correction` (what executions say of simulated seconds), `execution` (which placement is executed next).
"""

__all__: list[str] = []
