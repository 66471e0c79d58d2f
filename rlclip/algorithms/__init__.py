"""A table from published names to points of the space of rules.

A row has no logic: it names a value on each axis, its source, and how well
that source is known. To add one, write a function that returns a LossSpec,
decorate it with `@row('name', trust=...)`, and put it into a file of this
package: it is found, tested, explained and usable in configs.

  ratio_clip  an interval for the token's ratio     PPO, GRPO, DAPO, ATR, GAPO
  sequence    the ratio of the whole sequence       GSPO, LUSPO, GMPO
  weight      a held weight, a fading gradient      CISPO, TOPR, SAPO, SPO
  divergence  distributions; sampler corrections    TR-PPO, DPPO, IcePop
  rpg         policy gradients with a KL            RPG's eight
"""
from rlclip.algorithms.table import (aliases, documentation, get, names,
                                     REGISTRY, row, TRUST, trust)

__all__ = ('REGISTRY', 'TRUST', 'aliases', 'documentation', 'get', 'names',
           'row', 'trust')
