"""Optimizers by name, behind one clip, one weight decay and one schedule."""
import collections
import math
from typing import Callable, NamedTuple, Sequence

import jax
import optax
from optax import contrib

from rlclip import registry
from rlclip.types import Params

# What Adam's steps measure on average, so that Muon takes Adam's learning
# rates. Source: Liu et al., "Muon is Scalable for LLM Training", 2025.
_MUON_RMS = 0.2


class Moments(NamedTuple):
  """What an optimizer makes a direction with; see `make`."""
  b1: float
  b2: float
  epsilon: float
  state_dtype: str


# (moments, transformations from a direction to a step, learning rate by
# update) -> transformation of gradients.
Builder = Callable[
    [Moments, Sequence[optax.GradientTransformation], optax.Schedule],
    optax.GradientTransformation]
REGISTRY: registry.Registry[Builder] = registry.Registry('optimizer')


def make(learning_rate: float, *, name: str = 'adamw', warmup_steps: int = 0,
         decay_steps: int = 0, schedule: str = 'constant', b1: float = 0.9,
         b2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.0,
         max_grad_norm: float = 0.0, state_dtype: str = 'float32',
         multipliers: Sequence[str] = ()) -> optax.GradientTransformation:
  """An optimizer behind gradient clipping, with a warm-up and a schedule.

  Args:
    learning_rate: at the schedule's peak.
    name: in REGISTRY.
    warmup_steps: linear from 0, in optimizer updates.
    decay_steps: updates after which cosine or linear reaches 0.
    schedule: 'constant', 'cosine' or 'linear', after the warm-up.
    b1: decay of the first moment, Muon's momentum among them; the weight of
      the average in a schedule-free optimizer's parameters.
    b2: decay of the second moment.
    epsilon: added to the root of the second moment.
    weight_decay: decoupled, times the learning rate; matrices only.
    max_grad_norm: global norm to clip to; 0 for none.
    state_dtype: of the first moment.
    multipliers: 'group=factor' each, of the learning rate and with it of the
      decay; groups as in `group`.

  Returns:
    An optax.GradientTransformation. Its state's shardings: `state_like`.

  Raises:
    ValueError: on an unknown name, schedule or group, a decay that ends in the
      warm-up, or what a schedule-free optimizer does not take.
  """
  build = REGISTRY[name]
  if name == 'schedule_free_adamw':
    _check_schedule_free(schedule, b1, state_dtype)
  factors = parse_multipliers(multipliers)
  rate = rate_schedule(learning_rate, warmup_steps, decay_steps, schedule)
  step = [optax.add_decayed_weights(weight_decay, _is_matrix),
          optax.scale_by_learning_rate(rate)]
  if factors:
    step.append(_scale_by_group(factors))
  clip = optax.clip_by_global_norm(max_grad_norm)
  return optax.chain(
      clip if max_grad_norm else optax.identity(),
      build(Moments(b1, b2, epsilon, state_dtype), step, rate))


def rate_schedule(learning_rate: float, warmup_steps: int, decay_steps: int,
                  schedule: str) -> optax.Schedule:
  """The learning rate by update, counted from 0; see make."""
  if schedule not in ('constant', 'cosine', 'linear'):
    raise ValueError(
        f"schedule must be 'constant', 'cosine' or 'linear', got {schedule!r}.")
  if schedule != 'constant' and decay_steps <= warmup_steps:
    raise ValueError(
        f'schedule {schedule!r} needs decay_steps > warmup_steps, got '
        f'{decay_steps} and {warmup_steps}.')
  span = decay_steps - warmup_steps
  after = {
      'constant': lambda: optax.constant_schedule(learning_rate),
      'cosine': lambda: optax.cosine_decay_schedule(learning_rate, span),
      'linear': lambda: optax.linear_schedule(learning_rate, 0.0, span),
  }[schedule]()
  # From 1 / warmup_steps, so that the first update is not lost.
  warmup = lambda step: learning_rate * (step + 1) / max(warmup_steps, 1)
  return optax.join_schedules([warmup, after], [warmup_steps])


def state_like(optimizer: optax.GradientTransformation, params: Params,
               values: Params, rest) -> optax.OptState:
  """The optimizer's state with a value of `values` at each array.

  Args:
    optimizer: of `make`, or any of optax.
    params: abstract or concrete.
    values: a tree like `params`, as of shardings.
    rest: the value where an array belongs to no parameter.
  """
  # Muon's two halves have holes where the other's parameters are.
  is_hole = lambda leaf: isinstance(leaf, optax.MaskedNode)
  return optax.tree.map_params(
      optimizer, lambda leaf, value: leaf if is_hole(leaf) else value,
      jax.eval_shape(optimizer.init, params), values,
      transform_non_params=lambda _: rest, is_leaf=is_hole)


# Group of the learning rate -> whether a parameter's path is in it; the first.
_GROUPS = {
    'norm': lambda path: path[-1] == 'scale',
    'bias': lambda path: path[-1] == 'bias',
    'embedding': lambda path: path[-1] == 'embedding',
    'head': lambda path: path[-1] == 'head',
    'attention': lambda path: 'attention' in path,
    'mlp': lambda path: 'mlp' in path,
}


def group(path: Sequence[str]) -> str | None:
  """Which of the groups of parameters a path is in: the first, or None."""
  return next((name for name, has in _GROUPS.items() if has(path)), None)


def parse_multipliers(texts: Sequence[str]) -> dict[str, float]:
  """('embedding=0.1', 'norm=0') -> the factors by group.

  Raises:
    ValueError: if one is no group, or no number of 0 or more, or is given
      twice.
  """
  factors = {}
  for text in texts:
    name, _, factor = text.partition('=')
    try:
      factors[name] = float(factor)
    except ValueError:
      factors[name] = math.nan
    if name not in _GROUPS or not 0 <= factors[name] < math.inf:
      raise ValueError(
          f"A multiplier must be 'group=factor', as in 'embedding=0.1', with a "
          f'factor of 0 or more and a group out of {", ".join(_GROUPS)}; got '
          f'{text!r}.')
  if len(factors) < len(texts):
    counts = collections.Counter(text.partition('=')[0] for text in texts)
    twice = counts.most_common(1)[0][0]
    raise ValueError(f'The multiplier of {twice!r} is given twice.')
  return factors


@REGISTRY.register('adamw')
def _adamw(moments, step, rate):
  """Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019."""
  del rate
  return optax.chain(_adam(moments), *step)


@REGISTRY.register('muon')
def _muon(moments, step, rate):
  """Orthogonalized momentum for the layers' kernels, Adam for all else.

  A stack of layers [L, in, out] is L matrices.

  Source: Jordan et al., "Muon", 2024, with Nesterov's momentum.
  """
  del rate
  dimensions = lambda tree: jax.tree.map(
      lambda _: contrib.MuonDimensionNumbers(-2, -1), tree)
  own = contrib.scale_by_muon(
      beta=moments.b1, mu_dtype=moments.state_dtype,
      weight_dimension_numbers=dimensions)
  return optax.chain(
      optax.partition(
          {'muon': optax.chain(own, optax.stateless(_to_adams_size)),
           'adam': _adam(moments)}, _muon_labels), *step)


@REGISTRY.register('schedule_free_adamw')
def _schedule_free_adamw(moments, step, rate):
  """Averages in place of a decay; z and the second moment are its state.

  The parameters are y, where gradients are taken: y = (1 - b1) z + b1 x, with
  x the average of z. They also sample, are evaluated and are exported: the
  batch is then the policy's own, which x would not be, and RPG's runs do so.

  Source: Defazio et al., "The Road Less Scheduled", 2024.
  """
  adam = optax.scale_by_rms(
      moments.b2, moments.epsilon, eps_in_sqrt=False, bias_correction=True)
  return contrib.schedule_free(
      # It counts from 1, and the rate from 0.
      optax.chain(adam, *step), lambda count: rate(count - 1), b1=moments.b1)


def _adam(moments):
  return optax.scale_by_adam(
      moments.b1, moments.b2, moments.epsilon, mu_dtype=moments.state_dtype)


def _to_adams_size(updates, params=None):
  del params
  return jax.tree.map(
      lambda x: _MUON_RMS * math.sqrt(max(x.shape[-2:])) * x, updates)


def _muon_labels(params):
  return _by_path(lambda path: 'muon' if (
      'layers' in path and path[-1] not in ('scale', 'bias')) else 'adam',
      params)


def _scale_by_group(factors):
  scaled = lambda updates, params=None: jax.tree.map(
      lambda x, factor: factor * x, updates,
      _by_path(lambda path: factors.get(group(path), 1.0), updates))
  return optax.stateless(scaled)


def _is_matrix(params):
  """Weight decay leaves norms and biases alone (stacked ones are 2-D)."""
  return _by_path(lambda path: path[-1] not in ('scale', 'bias'), params)


def _by_path(function, tree):
  return jax.tree_util.tree_map_with_path(
      lambda path, _: function([key.key for key in path]), tree)


def _check_schedule_free(schedule, b1, state_dtype):
  for key, expected, holds, got in (
      ('schedule', 'constant: its average takes the place of a decay',
       schedule == 'constant', schedule),
      ('b1', 'above 0 and at most 1', 0 < b1 <= 1, b1),
      ('state_dtype', 'float32: its state z is weights, and small steps would '
       'be rounded off', state_dtype == 'float32', state_dtype)):
    if not holds:
      raise ValueError(
          f'schedule_free_adamw needs {key} {expected}; got {got!r}.')
