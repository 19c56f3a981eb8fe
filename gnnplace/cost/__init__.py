"""Seconds of one op on one device, seconds of one transfer.

In reading order: `cost_model` (the protocol), `roofline` (seconds from FLOPs, bytes and published rates), `measured`
(seconds that were measured, by op signature, and their file), `calibrate` (a roofline fitted to measured seconds),
`measurement_store` (all that was ever measured on a machine), `per_type`
(random factors per op type and kind of device).
"""

__all__: list[str] = []
