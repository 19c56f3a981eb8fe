"""Only here does real time pass; every number carries its repeats and spread.

Running, in reading order: `gpu_slices` (a GPU as several devices), `devices` (pinning, session and provider options, where
ops ended up), `values` (ONNX Runtime's and Python's), `value_types` (what ONNX Runtime knows of a model and ONNX does not),
`part_session` (one part, one ONNX Runtime session), `session_cache`, `dataflow` (who waits for whom), `request` (one step that
is under way), `task_thread` and `device_memory` (copies beside computing), `worker` (one device), `pipeline` (all devices),
`state` (what lives on between steps), `runner` (one request, many, or later), `input_feed`, `array_file` (inputs and outputs as files), `training_loop`, `session` (the
placed model behind ONNX Runtime's methods), `onnx_backend` (and behind ONNX's interface for backends). Measuring: `busy`
(whether devices are free), `measure`, `measure_options`, `throughput`, `plain`, `grouped_parts`, `segment_record`, `process_watch`,
`profiled_session`, `worker_process`, `link_probe`, `profile`, `execution` (one placement on its way through such a process), `measured_evaluator`.
"""

__all__: list[str] = []
