"""Loss and gradient of one token as a function of its ratio, for any rule.

The token's log-prob moves, everything else stands still: sampler, old policy
and reference agree on its probability q. What a rule reads of other tokens,
rows or the vocabulary is given in the smallest form there is,

  rewards     a group of SIZE rows, of which this one is a success where A > 0
  statistics  a distribution of two tokens, this one and the rest: p = w q
  levels      the other tokens of the row stay at w = 1

Where the gradient is zero is found from the gradient alone. All in float64.
"""
import dataclasses
import functools
import inspect
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import divergences, losses

Array = Any

SIZE = 8  # rows of a group
PROBABILITY = 0.01  # q, unless another is asked for
LIMIT = 32.0  # ratios from 1 / LIMIT to LIMIT are looked at
_POINTS = 1024  # of a grid; one shape, so that a rule is compiled once


class Setting(NamedTuple):
  """What a curve is drawn for.

  Attributes:
    probability: q of the token, under sampler, old policy and reference.
    successes: rows of the group with reward 1, the others have 0.
    num_tokens: tokens of the row; the first moves.
    moves: 'policy', whose w = p / q is drawn; or 'old' and with it the policy,
      at w = 1: then the ratio drawn is k = old / behavior.
  """
  probability: float = PROBABILITY
  successes: int = 1
  num_tokens: int = 1
  moves: str = 'policy'


class Curve(NamedTuple):
  ratios: np.ndarray  # [K]
  losses: np.ndarray  # [K], of the row
  gradients: np.ndarray  # [K], of the loss by the moving token's log p


class Span(NamedTuple):
  """Ratios between which the gradient has one sign: -1 pushes log p up."""
  low: float
  high: float
  sign: int


def curve(spec: losses.LossSpec, advantage: float, ratios: Array,
          setting: Setting = Setting()) -> Curve:
  """Loss and gradient at some ratios.

  Args:
    spec: the rule.
    advantage: A of the row; a reward of 1 where it is positive.
    ratios: float[K], positive.
    setting: what else the token meets.

  Returns:
    The Curve, float64.
  """
  ratios = np.asarray(ratios, np.float64)
  padded = np.ones(-(-len(ratios) // _POINTS) * _POINTS)
  padded[:len(ratios)] = ratios
  values, slopes = [], []
  for part in padded.reshape(-1, _POINTS):
    value, slope = _evaluate(spec, advantage, np.log(part), setting)
    values.append(value)
    slopes.append(slope)
  # Adding 0 turns -0 into 0.
  cut = lambda parts: np.concatenate(parts)[:len(ratios)] + 0.0
  return Curve(ratios, cut(values), cut(slopes))


def spans(spec: losses.LossSpec, advantage: float,
          setting: Setting = Setting()) -> tuple[Span, ...]:
  """Where the gradient is zero, and where it pushes up or down.

  A grid, finer toward w = 1, finds the changes of sign; each is then enclosed
  down to the last digits.

  Returns:
    The Spans from 1 / LIMIT up to LIMIT or 1 / q, without gaps. A span of no
    width is a single point.
  """
  top = math.log(LIMIT)
  if setting.moves == 'policy':
    # Below 1 / q by a rounding error: log(1 - p) is finite there.
    top = min(top, -math.log(setting.probability) - 1e-9)
  grid = _grid(math.log(LIMIT), top)
  sign = functools.partial(_signs, spec, advantage, setting)
  signs, found, start = sign(grid), [], grid[0]
  if np.isnan(signs).any():
    raise ValueError(
        f'{spec} has no gradient at a ratio of '
        f'{math.exp(grid[np.isnan(signs).argmax()]):g}, got nan.')
  for i in np.flatnonzero(np.diff(signs)):
    low, here = grid[i], signs[i]
    while here != signs[i + 1]:  # more than one change between two points
      low, high, after = _enclose(sign, low, grid[i + 1], here)
      change = 0.5 * (low + high)
      found.append(Span(math.exp(start), math.exp(change), int(here)))
      start, here, low = change, after, high
  return (*found, Span(math.exp(start), math.exp(top), int(signs[-1])))


def depends_on_probability(spec: losses.LossSpec, advantage: float) -> bool:
  """Whether q matters to the gradient at a given ratio."""
  ratios = np.exp(np.linspace(-3.0, 0.1, 200))
  first, second = (
      curve(spec, advantage, ratios, Setting(probability=q)).gradients
      for q in (PROBABILITY, 0.9))
  return not np.allclose(first, second, rtol=1e-9, atol=1e-12)


def statistics_of(spec: losses.LossSpec) -> tuple[Any, ...]:
  """The Statistics that the parts of a rule ask for."""
  parts = (getattr(spec, field.name) for field in dataclasses.fields(spec))
  asked = {s for part in parts for s in getattr(part, 'needs', ())}
  return tuple(sorted(asked))


def _grid(bottom: float, top: float) -> np.ndarray:
  """Log-ratios, even in log |d| on both sides of 0."""
  half = np.geomspace(1e-6, 1.0, _POINTS // 2 - 2)
  return np.concatenate([-bottom * half[::-1], [0.0], top * half])


def _signs(spec, advantage, setting, log_ratios):
  value = _evaluate(spec, advantage, _padded(log_ratios), setting)[1]
  return np.sign(value[:len(log_ratios)])


def _padded(values):
  return np.concatenate([values, np.zeros(_POINTS - len(values))])


def _enclose(sign, low, high, here):
  """The first change of sign in (low, high], and the sign behind it."""
  for _ in range(5):
    points = np.linspace(low, high, _POINTS)
    signs = sign(points)
    first = int(np.argmax(signs != here))
    low, high, after = points[first - 1], points[first], signs[first]
  return low, high, after


def _evaluate(spec, advantage, log_ratios, setting):
  with jax.enable_x64(True):
    function = _compiled(
        _without_averages(spec), setting.num_tokens, setting.moves)
    value, slope = function(
        jnp.asarray(log_ratios, jnp.float64), jnp.float64(advantage),
        jnp.float64(math.log(setting.probability)), setting.successes)
    return np.array(value), np.array(slope)


def _without_averages(spec):
  """The rule with the default reduction and advantage where it takes them.

  Of a single token they say nothing, and equal rules are compiled once.
  """
  try:
    plain = losses.LossSpec()
    return dataclasses.replace(
        spec, reduction=plain.reduction, advantage=plain.advantage)
  except ValueError:
    return spec


@functools.lru_cache(maxsize=None)
def _compiled(spec, num_tokens, moves):
  """(log-ratios [K], A, log q, successes) -> losses [K], gradients [K]."""
  asked = statistics_of(spec)
  accepted = inspect.signature(losses.from_arrays).parameters
  size = SIZE if spec.needs_rewards else 1

  def loss(logps, base, advantage, successes):
    shape = jnp.zeros((size, num_tokens))
    if moves == 'old':
      old, behavior = logps, base + shape
    else:
      old = behavior = base + shape
    extra = {}
    if asked:
      extra['statistics'] = {
          s: divergences.get(s.measure).exact(
              _two_tokens(logps), _two_tokens(base + shape)) for s in asked}
    if 'entropy' in accepted:
      pair = _two_tokens(logps)
      extra['entropy'] = -jnp.sum(jnp.exp(pair) * pair, -1)
    if spec.needs_rewards:
      own = jnp.where(advantage > 0, 1, 0)
      others = jnp.arange(size - 1) < successes - own
      extra['rewards'] = jnp.append(own, others).astype(logps.dtype)
      extra['group'] = jnp.zeros(size, int)
    return losses.from_arrays(
        spec, logps=logps, behavior_logps=behavior, old_logps=old,
        reference_logps=base + shape, advantages=jnp.full(size, advantage),
        # The other rows of the group are there for its statistics alone.
        mask=jnp.broadcast_to(jnp.arange(size)[:, None] == 0, shape.shape),
        **extra).loss.total

  def at(log_ratio, advantage, base, successes):
    logps = jnp.full((size, num_tokens), base).at[0, 0].add(log_ratio)
    value, slope = jax.value_and_grad(loss)(
        logps, base, advantage, successes)
    return value, slope[0, 0]

  return jax.jit(jax.vmap(at, (0, None, None, None)))


def _two_tokens(logps):
  """Log-probs of the token and of all others together, [..., 2]."""
  return jnp.stack([logps, jnp.log1p(-jnp.exp(logps))], -1)
