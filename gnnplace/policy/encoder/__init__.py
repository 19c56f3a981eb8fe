"""Features and edges in, embeddings out: one frame for all encoders, and a round of messages for each kind.

Reading order: `neighbours` (what a round asks of a graph; plain torch, DGL's parity oracle), `graph_encoder` (input projection and
rounds), and the rounds: `mean_messages` (means over neighbours), `attention` (weighted by what the neighbours are).
"""

__all__: list[str] = []
