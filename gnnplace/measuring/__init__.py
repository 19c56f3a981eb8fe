"""Measurements of time, each with its repeats and its spread; no other room measures time.

In reading order: `timing` (interleaved repeats, medians, intervals), `paired` (differences of two placements), `near_cores` (phases of the host that do not count),
`busy` (utilization of devices by other work), `grouped_parts` (from a placement of op groups to parts), `worker_process` (jobs
in an isolated process), `link_probe` (cost of session calls and hand-overs), `profile_job`, `profile` (seconds of each op), `provider_profile` (the same
where ONNX Runtime's profiler does not show them),
`plain_session` (one session of the whole model), `comparison` (costs side by side, and the best plain session), `stored_model`
(what the store knows of a model), `job_runner` (jobs beside the reference), `measured_evaluator` (placement -> measured
runtime).
"""

__all__: list[str] = []
