"""Named identities that the rules must satisfy, each a function to an error.

Every certificate draws its own policies from a seed and returns the largest
absolute deviation, about 1e-16 where the identity holds. `check` runs one, and
`covering` says which of them speak of a rule. A certificate is a function in
one of the modules of this package, which are found by themselves.

  certificate    what a certificate is, and the list of all
  rpg            RPG's eight losses, and its two forms of clipping
  penalties      which gradient an estimator of a divergence has
  regions        intervals and gates against the formulas they stand for
  programs       all rules on one batch, compiled together
  batches        what every rule is at w = 1; cut, padded and sharded batches
  peers          other implementations of the same loss
"""
from rlclip.oracle.certificates.certificate import (check, check_each, covering,
                                                    documentation, is_available,
                                                    names, REGISTRY, TOLERANCE)
from rlclip.oracle.certificates.penalties import token_penalty_error
from rlclip.oracle.certificates.rpg import algorithm_2, rpg_error

__all__ = ('REGISTRY', 'TOLERANCE', 'algorithm_2', 'check',
           'check_each', 'covering', 'documentation', 'is_available', 'names',
           'rpg_error', 'token_penalty_error')
