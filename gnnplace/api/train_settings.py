"""Everything that determines the weights of a training run."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from gnnplace.api.measured_training import EXECUTING, MeasuredModel
from gnnplace.api.training_problems import LESSON_RANGES, ProblemRanges
from gnnplace.planners.gnn.teaching import TeachingConfig
from gnnplace.policy.network import PolicyConfig
from gnnplace.training import Ablation
from gnnplace.training.data_parallel import DataParallelConfig

_TRAINED_RATE = 1e-3
_TRAINED_STEPS, _TRAINED_PROBLEMS = 5, 5
"""Learning rate, steps and problems per step of lessons for a policy that is trained already: more per step, and smaller steps.
With the rate for fresh weights, its builds wandered by 3 % of the makespan from one checkpoint to the next."""


@dataclass(frozen=True)
class StartPolicy:
    """The policy that a run started from."""

    name: str
    sha256: str


@dataclass(frozen=True)
class TrainSettings:
    """Everything that determines the weights of a run.

    >>> TrainSettings.of(num_updates=10, num_processes=1, seed=0, ablations=["final-reward"]).ablations
    ('final-reward',)
    """

    training: DataParallelConfig = DataParallelConfig()
    problems: ProblemRanges = ProblemRanges()
    policy: PolicyConfig = PolicyConfig()
    start: StartPolicy | None = None
    """None: fresh weights from the seed."""
    measured: MeasuredModel | None = None
    """The model that is executed in place of simulated problems; None: `problems`."""
    lessons: ProblemRanges = LESSON_RANGES
    """Problems whose schedules the policy builds and revises."""
    teaching: TeachingConfig = TeachingConfig()
    """Amount and kind of lessons from each of them."""

    @classmethod
    def of(
        cls,
        num_updates: int,
        num_processes: int,
        seed: int,
        ablations: Collection[Ablation] = (),
        measured: MeasuredModel | None = None,
        is_trained: bool = False,
    ) -> TrainSettings:
        """The defaults for a run of that length.

        Problems reach their full size after a quarter of the run, or have it from the beginning where the run starts from a
        trained policy (`is_trained`), which also learns in smaller steps from more problems each.
        """
        amount = cls.training if measured is None else EXECUTING
        ppo = dataclasses.replace(cls.training.ppo, num_updates=num_updates, final_reward="final-reward" in ablations)
        growth = max(1, num_updates * num_processes * amount.problems_per_process // 4)
        lesson_growth = growth * amount.lesson_steps * amount.lesson_problems
        if is_trained and measured is None:
            growth, lesson_growth = 1, 1
            ppo = dataclasses.replace(ppo, learning_rate=_TRAINED_RATE)
            amount = dataclasses.replace(amount, lesson_steps=_TRAINED_STEPS, lesson_problems=_TRAINED_PROBLEMS)
        training = dataclasses.replace(amount, seed=seed, num_processes=num_processes, ppo=ppo)
        lessons = dataclasses.replace(cls.lessons, growth=lesson_growth)
        policy = dataclasses.replace(
            cls.policy,
            device_features="no-device-features" not in ablations,
            message_passing="no-message-passing" not in ablations,
            schedule_features="no-schedule-features" not in ablations,
        )
        if measured is not None:
            policy = dataclasses.replace(policy, decision_width=0, budget_features=False)
        return cls(
            training, dataclasses.replace(cls.problems, growth=growth), policy, measured=measured, lessons=lessons
        )

    @property
    def ablations(self) -> tuple[Ablation, ...]:
        """The parts of the method that the run leaves out."""
        policy = self.policy
        is_left_out: dict[Ablation, bool] = {
            "no-device-features": not policy.device_features,
            "no-message-passing": not policy.message_passing,
            "no-schedule-features": not policy.schedule_features,
            "final-reward": self.training.ppo.final_reward,
        }
        return tuple(name for name, left_out in is_left_out.items() if left_out)
