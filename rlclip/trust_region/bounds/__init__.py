"""How the trust region [low, high] for the ratio w is drawn.

  fixed        the same numbers for every token, or by the sign of A
  divergence   the ratios within a divergence's budget
  group        the rarer the success in its group, the more room
  probability  the likelier the token was, the less room
  exact        the whole distribution's divergence says in or out
  batch        searched so that successes have their share of the loss
  compose      the intersection or the union of two

To add one, write a frozen dataclass that is a `Bounds`, decorate it with
`@REGISTRY.register('name')`, and put it into a file of this package.
"""
from rlclip.trust_region.bounds.batch import BatchBalanced
from rlclip.trust_region.bounds.compose import Intersection, Union
from rlclip.trust_region.bounds.divergence import FromDivergence
from rlclip.trust_region.bounds.exact import ExactDivergence, TopKDivergence
from rlclip.trust_region.bounds.fixed import Fixed, FixedBySign
from rlclip.trust_region.bounds.group import GroupAdaptive
from rlclip.trust_region.bounds.probability import (BinaryKL,
                                                    BinaryTotalVariation,
                                                    ProbabilityAdaptive)
from rlclip.trust_region.bounds.region import (Bounds, BoundsInputs, Region,
                                               REGISTRY)

__all__ = ('BatchBalanced', 'BinaryKL', 'BinaryTotalVariation', 'Bounds',
           'BoundsInputs', 'ExactDivergence', 'Fixed', 'FixedBySign',
           'FromDivergence', 'GroupAdaptive', 'Intersection',
           'ProbabilityAdaptive', 'REGISTRY', 'Region', 'TopKDivergence',
           'Union')
