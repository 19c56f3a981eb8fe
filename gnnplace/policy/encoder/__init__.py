"""Features and edges in, embeddings out.

Reading order: `neighbours` (what a round asks of a graph; plain torch, DGL's parity oracle), `graph_encoder` (input projection and
rounds), `mean_messages` (one round: means over neighbours).
"""

__all__: list[str] = []
