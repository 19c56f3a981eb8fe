"""Seconds of one op on one device, seconds of one transfer: roofline, profiled, calibrated.

In reading order: `cost_model` (the protocol, the roofline, random factors per op type), `measured` (seconds measured on real
devices, by op signature, and their file), `calibrate` (a roofline fitted to measured seconds), `stored_runs`
(runs of placements, as the store keeps them), `measurement_store` (all measurements of a machine).
"""

__all__: list[str] = []
