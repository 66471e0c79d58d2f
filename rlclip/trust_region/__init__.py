"""Trust regions for the ratio w: how they are drawn, and what leaving does.

  levels  which ratio: the token's, the sequence's geometric mean or product
  bounds  where [low, high] lies: fixed, from a divergence, group-adaptive
  gates   what happens outside: gradient removed, capped, reweighted

Each axis is a registry of frozen dataclasses (levels: of functions); the
fields are hyperparameters, checked at construction, and calling one is pure.
"""
from rlclip.trust_region import bounds, gates, levels

__all__ = ('bounds', 'gates', 'levels')
