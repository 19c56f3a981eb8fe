"""The policy's search; what happens between two evaluations is compiled, as simulating a placement takes only microseconds.

Reading order: `search` (the loop), `odds` (asking the policy about a placement), `moves` (drawing candidates from its answers),
`stretch` (candidates that rebuild a part of the placement), `known` (placements that were evaluated before).
"""

__all__: list[str] = []
