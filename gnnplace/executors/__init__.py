"""Only here does real time pass; every number carries its repeats and spread.

Running, in reading order: `devices` (names of real devices, pinning, session options), `part_session` (one part, one
ONNX Runtime session), `session_cache`, `dataflow` (who waits for whom), `runner` (one worker per device), `session` (the
placed model behind ONNX Runtime's methods). Measuring: `busy` (whether devices are free), `measure`, `plain`, `grouped_parts`, `profile`, `link_probe`,
`process_watch`, `worker_process`, `measured_evaluator`.
"""

__all__: list[str] = []
