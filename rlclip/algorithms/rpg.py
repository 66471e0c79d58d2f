"""RPG (arXiv 2505.17508): eight policy gradients with a KL to the sampler."""
from rlclip.algorithms.table import row
from rlclip.losses import LossSpec, Penalty
from rlclip.losses.reduce import TokenMean
from rlclip.trust_region import gates
from rlclip.trust_region.bounds import Fixed


def _rpg(measure, control_variate, **where) -> LossSpec:
  """What RPG's eight rules share; beta 1e-4, eps 0.2 and 0.28, cap 10."""
  form = 'score' if where['estimator'] == 'score' else 'surrogate'
  return LossSpec(
      bounds=Fixed(0.2, 0.28), gate=gates.DualClip(10.0, form),
      penalty=Penalty(measure, 1e-4, toward='anchor',
                      control_variate=control_variate, **where),
      reduction=TokenMean(), advantage='group_mean')


_INSIDE = {'estimator': 'pathwise', 'placement': 'inside'}
_BESIDE = {'estimator': 'pathwise', 'placement': 'beside'}
_SCORE = {'estimator': 'score', 'placement': 'inside'}


@row('rpg_fkl', trust='PDF')
def _rpg_fkl():
  """RPG, forward KL of normalized policies: reward clipped, penalty beside.

  Source: Zhang et al., arXiv 2505.17508, Table 1 and section 3.3. The cap 10
  is that of its scripts, the paper gives none.
  """
  return _rpg('forward_kl', -1.0, **_BESIDE)


@row('rpg_ufkl', trust='PDF')
def _rpg_ufkl():
  """RPG, unnormalized forward KL: reward clipped, penalty beside.

  Source: Zhang et al., arXiv 2505.17508, Proposition 3.2 and section 3.3.
  """
  return _rpg('forward_kl', 0.0, **_BESIDE)


@row('rpg_rkl', trust='PDF')
def _rpg_rkl():
  """RPG, reverse KL: penalty inside, gradient through ratio and advantage.

  Source: Zhang et al., arXiv 2505.17508, section 3.3 and Algorithm 1.
  """
  return _rpg('reverse_kl', 1.0, **_INSIDE)


@row('rpg_urkl', trust='PDF')
def _rpg_urkl():
  """RPG, unnormalized reverse KL: penalty inside, gradient through both.

  Source: Zhang et al., arXiv 2505.17508, section 3.3 and Algorithm 1.
  """
  return _rpg('reverse_kl', 0.0, **_INSIDE)


@row('rpg_reinforce_fkl', trust='PDF')
def _rpg_reinforce_fkl():
  """RPG-REINFORCE with the forward KL: Algorithm 2, C_KL = beta.

  Source: Zhang et al., arXiv 2505.17508, Table 2 and Algorithm 2.
  """
  return _rpg('forward_kl', -1.0, **_SCORE)


@row('rpg_reinforce_ufkl', trust='PDF')
def _rpg_reinforce_ufkl():
  """RPG-REINFORCE, unnormalized forward KL: C_KL = -beta (w - 1).

  Source: Zhang et al., arXiv 2505.17508, Table 2 and Algorithm 2.
  """
  return _rpg('forward_kl', 0.0, **_SCORE)


@row('rpg_reinforce_rkl', trust='PDF')
def _rpg_reinforce_rkl():
  """RPG-REINFORCE with the reverse KL: C_KL = -beta w (log w + 1).

  Source: Zhang et al., arXiv 2505.17508, Table 2 and Algorithm 2.
  """
  return _rpg('reverse_kl', 1.0, **_SCORE)


@row('rpg_reinforce_urkl', trust='PDF')
def _rpg_reinforce_urkl():
  """RPG-REINFORCE, unnormalized reverse KL: C_KL = -beta w log w.

  Source: Zhang et al., arXiv 2505.17508, Table 2 and Algorithm 2.
  """
  return _rpg('reverse_kl', 0.0, **_SCORE)
