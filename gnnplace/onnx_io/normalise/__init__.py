"""The same model, easier to place: what it computes never changes here.

In reading order:

- `normalise.py`: the passes in their order: old constants, functions inlined, sorted, folded, dead code removed;
- `constants.py`: the elements of constants, where they may be looked at;
- `folding.py`: nodes that only read constants become initialisers;
- `names.py`: every node gets a name that no other node has;
- `captures.py`: what a node with subgraphs reads from outside of them.
"""

__all__: list[str] = []
