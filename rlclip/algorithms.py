"""A table from published names to points of the space of rules.

A row has no logic: it names a value on each axis, its source, and how well
that source is known.
"""
import dataclasses
import inspect
from typing import Any, Callable, NamedTuple

from rlclip import advantages
from rlclip import registry as registry_lib
from rlclip.losses import dials, LossSpec, mismatch, Penalty, reduce
from rlclip.losses.reduce import SequenceMean, SequenceSum, TokenMean
from rlclip.trust_region import bounds, gates
from rlclip.trust_region.bounds import Fixed, FromDivergence, GroupAdaptive


class Row(NamedTuple):
  make: Callable[[], LossSpec]
  trust: str  # a key of TRUST


TRUST = {
    'PDF': 'read in full in the paper',
    'CODE': 'read in published source code',
    '2ND': 'second-hand, from notes and code of third parties',
    'TEXTBOOK': 'common knowledge',
}


REGISTRY = registry_lib.Registry('algorithm')

# How a string becomes a value of the axis.
_AXES = {
    **{axis: lambda name, table=table: table[name]() for axis, table in (
        ('bounds', bounds.REGISTRY), ('gate', gates.REGISTRY),
        ('mismatch', mismatch.REGISTRY), ('reduction', reduce.REGISTRY))},
    'width_dial': dials.get, 'beta_dial': dials.get}


def names() -> tuple[str, ...]:
  """Registered algorithms, sorted."""
  return REGISTRY.names()


def aliases(name: str) -> tuple[str, ...]:
  """Other names of an algorithm."""
  return REGISTRY.aliases(name)


def documentation(name: str) -> str:
  """The docstring of an algorithm: what it is, and its source."""
  return inspect.getdoc(REGISTRY[name].make) or ''


def trust(name: str) -> str:
  """How well the source of an algorithm is known."""
  return TRUST[REGISTRY[name].trust]


def get(name: str, **overrides: Any) -> LossSpec:
  """The rule of this name, with some of its numbers or axes replaced.

  Args:
    name: a published name, such as 'atr_grpo'.
    **overrides: axes of LossSpec (gate='none', bounds=Fixed(.1, .1)) or any
      hyperparameter of the axes as they then are (delta=.03, eps_high=.28).
      beta=0 removes the penalty.

  Returns:
    The LossSpec.

  Raises:
    ValueError: for an unknown name, an override that this rule does not have,
      or a combination that makes no sense.
  """
  spec = REGISTRY[name].make()
  axes = {field.name for field in dataclasses.fields(LossSpec)}
  values = {k: getattr(spec, k) for k in axes}
  for key in axes & set(overrides):
    value = overrides[key]
    if isinstance(value, str) and key in _AXES:
      value = _AXES[key](value)
    values[key] = value
  numbers = {k: v for k, v in overrides.items() if k not in axes}
  for axis, value in values.items():
    own = _numbers(value) & set(numbers)
    if axis == 'penalty' and numbers.get('beta') == 0 and 'beta' in own:
      values[axis] = None
      own = {'beta'}
    elif own:
      values[axis] = dataclasses.replace(value, **{k: numbers[k] for k in own})
    numbers = {k: v for k, v in numbers.items() if k not in own}
  if numbers:
    allowed = axes.union(*map(_numbers, values.values()))
    raise ValueError(
        f'Algorithm {name!r} does not take {", ".join(sorted(numbers))}; it '
        f'takes {", ".join(sorted(allowed))}.')
  advantages.get(values['advantage'])  # an unknown one stops here
  return LossSpec(**values)


def _numbers(value) -> set[str]:
  """Hyperparameters of one axis's value."""
  if not dataclasses.is_dataclass(value):
    return set()
  return {field.name for field in dataclasses.fields(value)}


def _row(name: str, *aliases: str, trust: str):
  """Decorator that files a point under its published name."""
  def add(make):
    REGISTRY.register(name, *aliases)(Row(make, trust))
    return make
  return add


@_row('reinforce', 'gpg', trust='TEXTBOOK')
def _reinforce():
  """The policy gradient as it stands, with no ratio and no trust region.

  Source: Williams, 1992; verl's `gpg`.
  """
  return LossSpec(bounds=None, gate=gates.Unweighted(), reduction=TokenMean(),
                  advantage='group_mean')


@_row('grpo', trust='2ND')
def _grpo():
  """PPO's clip with group z-scores and the unweighted k3 to a reference.

  On policy that penalty has the gradient of KL(reference || policy), not of
  the KL(policy || reference) which its value estimates.

  Source: Shao et al., arXiv 2402.03300; eps 0.2 as in PPO. beta = 0.04 is the
  value usually quoted for the paper and was not checked against its text;
  the GRPO baseline of RPG's scripts has 0.001.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.PessimisticMin(),
      penalty=Penalty('reverse_kl', 0.04, estimator='unweighted_k3'),
      reduction=SequenceMean(), advantage='group_zscore')


@_row('dr_grpo', trust='2ND')
def _dr_grpo():
  """GRPO without the std in the advantage and without the length in the mean.

  Source: Liu et al., arXiv 2503.20783; sums over the token budget.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.PessimisticMin(),
      reduction=SequenceSum(), advantage='group_mean')


@_row('dapo', trust='2ND')
def _dapo():
  """GRPO with a wider upper bound, token mean and no reference.

  Its dynamic sampling and overlong shaping belong to the data, not here.

  Source: Yu et al., arXiv 2503.14476, eps 0.2 and 0.28.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.28), gate=gates.PessimisticMin(),
      reduction=TokenMean(), advantage='group_zscore')


@_row('gspo', trust='CODE')
def _gspo():
  """PPO's clip on the geometric mean of a sequence's ratios.

  Source: Zheng et al., arXiv 2507.18071, widths 3e-4 and 4e-4; as in TRL and
  verl.
  """
  return LossSpec(
      bounds=Fixed(3e-4, 4e-4), gate=gates.PessimisticMin(), level='sequence',
      reduction=SequenceMean(), advantage='group_zscore')


@_row('atr_grpo', trust='2ND')
def _atr_grpo():
  """GRPO whose interval holds KL3 = w - 1 - log w within a budget.

  Source: Wu et al., arXiv 2602.05494. Its delta and its mean over tokens are
  not known; delta = 0.02 (as wide as eps = 0.2 to second order) is ours.
  """
  return LossSpec(
      bounds=FromDivergence('forward_kl', 0.02), gate=gates.PessimisticMin(),
      reduction=SequenceMean(), advantage='group_zscore')


@_row('gapo', trust='2ND')
def _gapo():
  """GSPO with an upper bound that widens as success gets rarer in the group.

  Source: Jia et al., arXiv 2609.00444, equation 11, widths 3e-3 and 5e-3,
  advantages without std.
  """
  return LossSpec(
      bounds=GroupAdaptive(3e-3, 5e-3), gate=gates.PessimisticMin(),
      level='sequence', reduction=SequenceMean(), advantage='group_mean')


@_row('gapo_token', trust='2ND')
def _gapo_token():
  """GAPO on token ratios.

  Source: Jia et al., arXiv 2609.00444, token variant, widths 0.2 and 0.28.
  Its mean over tokens is not known; GRPO's is taken.
  """
  return LossSpec(
      bounds=GroupAdaptive(0.2, 0.28), gate=gates.PessimisticMin(),
      reduction=SequenceMean(), advantage='group_mean')


@_row('abc_grpo', trust='PDF')
def _abc_grpo():
  """GRPO with four bounds and without the min: outside there is no gradient.

  Source: Liu and Chen, arXiv 2601.03895, equation 5, all four widths 0.2.
  """
  return LossSpec(
      bounds=bounds.FixedBySign(), gate=gates.Unconditional(),
      reduction=SequenceMean(), advantage='group_mean')


@_row('dual_clip_ppo', trust='CODE')
def _dual_clip_ppo():
  """PPO with a cap at w = 3 on how hard bad tokens are pushed down.

  Source: Ye et al., arXiv 1912.09729; verl's default loss.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.DualClip(3.0),
      reduction=TokenMean(), advantage='group_zscore')


@_row('intellect_2', trust='CODE')
def _intellect_2():
  """Two-sided clip: GRPO with a cap at w = 4 where A < 0.

  Source: arXiv 2505.07291; TRL's `delta`.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.DualClip(4.0),
      reduction=TokenMean(), advantage='group_zscore')


@_row('cispo', trust='CODE')
def _cispo():
  """REINFORCE whose weight is the ratio, capped above and held fixed.

  eps_high is the distance of the cap from 1 (TRL's epsilon_high is the cap).

  Source: MiniMax, arXiv 2506.13585, upper bound only; 0.2 is that of verl's
  example script.
  """
  return LossSpec(
      bounds=Fixed(1.0, 0.2), gate=gates.ClippedWeight(),
      reduction=TokenMean(), advantage='group_zscore')


@_row('sapo', trust='CODE')
def _sapo():
  """A sigmoid in place of the clip; bad tokens fade a little faster.

  Source: SAPO, arXiv 2511.20347, temperatures 1.0 and 1.05; TRL, verl.
  """
  return LossSpec(
      bounds=None, gate=gates.SoftSigmoid(), reduction=SequenceMean(),
      advantage='group_zscore')


@_row('gmpo', trust='CODE')
def _gmpo():
  """Tokens are clipped in log w by 0.4, and their geometric mean weighs A.

  The bounds exp(-0.4) and exp(0.4) are those of |log w| <= 0.4.

  Source: GMPO, arXiv 2507.20673; verl's `geo_mean`.
  """
  return LossSpec(
      bounds=FromDivergence('absolute_log_ratio', 0.4),
      gate=gates.GeometricMean(), reduction=SequenceMean(),
      advantage='group_zscore')


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


@_row('rpg_fkl', trust='PDF')
def _rpg_fkl():
  """RPG, forward KL of normalized policies: reward clipped, penalty beside.

  Source: Zhang et al., arXiv 2505.17508, Table 1 and section 3.3. The cap 10
  is that of its scripts, the paper gives none.
  """
  return _rpg('forward_kl', -1.0, **_BESIDE)


@_row('rpg_ufkl', trust='PDF')
def _rpg_ufkl():
  """RPG, unnormalized forward KL: reward clipped, penalty beside.

  Source: Zhang et al., arXiv 2505.17508, Proposition 3.2 and section 3.3.
  """
  return _rpg('forward_kl', 0.0, **_BESIDE)


@_row('rpg_rkl', trust='PDF')
def _rpg_rkl():
  """RPG, reverse KL: penalty inside, gradient through ratio and advantage.

  Source: Zhang et al., arXiv 2505.17508, section 3.3 and Algorithm 1.
  """
  return _rpg('reverse_kl', 1.0, **_INSIDE)


@_row('rpg_urkl', trust='PDF')
def _rpg_urkl():
  """RPG, unnormalized reverse KL: penalty inside, gradient through both.

  Source: Zhang et al., arXiv 2505.17508, section 3.3 and Algorithm 1.
  """
  return _rpg('reverse_kl', 0.0, **_INSIDE)


@_row('rpg_reinforce_fkl', trust='PDF')
def _rpg_reinforce_fkl():
  """RPG-REINFORCE with the forward KL: Algorithm 2, C_KL = beta.

  Source: Zhang et al., arXiv 2505.17508, Table 2 and Algorithm 2.
  """
  return _rpg('forward_kl', -1.0, **_SCORE)


@_row('rpg_reinforce_ufkl', trust='PDF')
def _rpg_reinforce_ufkl():
  """RPG-REINFORCE, unnormalized forward KL: C_KL = -beta (w - 1).

  Source: Zhang et al., arXiv 2505.17508, Table 2 and Algorithm 2.
  """
  return _rpg('forward_kl', 0.0, **_SCORE)


@_row('rpg_reinforce_rkl', trust='PDF')
def _rpg_reinforce_rkl():
  """RPG-REINFORCE with the reverse KL: C_KL = -beta w (log w + 1).

  Source: Zhang et al., arXiv 2505.17508, Table 2 and Algorithm 2.
  """
  return _rpg('reverse_kl', 1.0, **_SCORE)


@_row('rpg_reinforce_urkl', trust='PDF')
def _rpg_reinforce_urkl():
  """RPG-REINFORCE, unnormalized reverse KL: C_KL = -beta w log w.

  Source: Zhang et al., arXiv 2505.17508, Table 2 and Algorithm 2.
  """
  return _rpg('reverse_kl', 0.0, **_SCORE)
