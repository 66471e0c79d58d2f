"""What a divergence is, and the interval of ratios that a budget allows."""
import dataclasses
import functools
import inspect
import math
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from rlclip import registry as registry_lib

Array = Any

REGISTRY = registry_lib.Registry('divergence', package='rlclip.divergences')
register = REGISTRY.register

# exp(+-700) is finite and positive in float64, exp(+-750) is not.
_LOG_RANGE = 700.0


@dataclasses.dataclass(frozen=True)
class Divergence:
  """D(new || old) = E_old[f(w)], all of it in terms of d = log w.

  f(1) = f'(1) = 0 and f''(1) = 1 (total variation excepted), so that a budget
  delta = eps^2 / 2 has the same width for all to second order. f falls on
  (0, 1) and rises on (1, inf).

  Attributes:
    generator: d -> f(exp d), elementwise. Its derivative is exp(d) slope(d),
      which near d = 0 is more exact than differentiating the generator.
    slope: d -> f'(exp d); None takes it from the generator by autodiff.
    exact: (log_p, log_q) [..., V] -> [...], D over the full vocabulary with
      p new and q old; None sums q f(p / q).
    ends: delta -> (low, high) in closed form on the host, float64; None finds
      them by bracketing.
    budget: delta -> the budget of the generator. Other than delta itself where
      D is a function of E_old[f(w)] (Renyi).
    per_sample: whether D is a mean over samples, E_old[f(w)]. If not, only
      `exact` is D, and no single token has a part of it.
    power: f(exp d) grows as |d|^power near 0, so a width k times as large is a
      budget k^power times as large; 1 where f has a kink at w = 1.
    name: as given to `get`.
  """
  generator: Callable[[Array], Array]
  slope: Callable[[Array], Array] | None = None
  exact: Callable[[Array, Array], Array] | None = None
  ends: Callable[[float], tuple[float, float]] | None = None
  budget: Callable[[Array], Array] = lambda delta: delta
  per_sample: bool = True
  power: int = 2
  name: str = ''

  def __post_init__(self):
    generator = self.generator
    if self.slope is None:
      object.__setattr__(
          self, 'slope', lambda d: jnp.exp(-d) * _derivative(generator, d))
    else:
      object.__setattr__(
          self, 'generator', _with_slope(generator, self.slope))
    if self.exact is None:
      object.__setattr__(self, 'exact', lambda log_p, log_q: jnp.sum(
          jnp.exp(log_q) * generator(log_p - log_q), axis=-1))

  def weight(self, log_ratio: Array) -> Array:
    """w f'(w): grad D = E_old[w f'(w) grad log new]."""
    return jnp.exp(log_ratio) * self.slope(log_ratio)

  def interval(self, delta: float) -> tuple[float, float]:
    """{w : f(w) <= budget(delta)}, on the host in float64.

    Args:
      delta: the budget, in units of D (nats for the KLs).

    Returns:
      (low, high) with 0 <= low <= 1 <= high; low is 0 where f(0+) is within
      the budget, high is inf where no float64 reaches it.

    Raises:
      ValueError: if delta is negative or nan.
    """
    delta = float(delta)
    if not delta >= 0:
      raise ValueError(
          f'interval of {self.name or "a divergence"} needs delta >= 0, got '
          f'{delta}. A budget of 0 keeps the ratio at 1.')
    if delta == 0:
      return 1.0, 1.0
    budget = delta if math.isinf(delta) else _at_once(self.budget, delta)
    if math.isinf(budget):
      return 0.0, math.inf
    if self.ends is not None:
      with np.errstate(all='ignore'):
        low, high = map(float, self.ends(budget))
      if 0 <= low <= 1 <= high < math.inf:
        return low, high
    return self._search(budget)

  def _search(self, budget: float) -> tuple[float, float]:
    """Brackets f = budget on either side of d = 0, in log space."""
    excess = lambda d: _at_once(self.generator, d) - budget
    # A budget that f reaches in the limit only, but for rounding: no bound.
    rounding = 4 * np.finfo(np.float64).eps * budget
    ends = []
    for sign, beyond in ((-1.0, 0.0), (1.0, math.inf)):
      if excess(sign * _LOG_RANGE) <= rounding:
        ends.append(beyond)
        continue
      # f is about d^2 / 2: start there and double.
      far = math.sqrt(2 * budget)
      while far < _LOG_RANGE and excess(sign * far) < 0:
        far *= 2
      root = optimize.brentq(
          excess, 0.0, sign * min(far, _LOG_RANGE), xtol=1e-16, rtol=1e-15,
          maxiter=500)
      ends.append(math.exp(root))
    return ends[0], ends[1]


def names() -> tuple[str, ...]:
  """Registered divergences, sorted."""
  return REGISTRY.names()


def get(name: str, **hyper: float) -> Divergence:
  """Builds a divergence, as in get('forward_kl') or get('alpha', order=0.5).

  Args:
    name: a name or alias; 'alpha(order=0.5)' carries its own numbers.
    **hyper: the divergence's keyword arguments.

  Returns:
    The Divergence.

  Raises:
    ValueError: for an unknown name, or one that does not take these numbers.
  """
  key, numbers = registry_lib.parse(name)
  make = REGISTRY[key]
  numbers.update(hyper)
  allowed = tuple(inspect.signature(make).parameters)
  unknown = sorted(set(numbers) - set(allowed))
  if unknown:
    raise ValueError(
        f'Divergence {key!r} does not take {", ".join(unknown)}; it takes '
        f'{", ".join(allowed) or "no numbers"}.')
  label = ', '.join(f'{k}={v:g}' for k, v in sorted(numbers.items()))
  return dataclasses.replace(
      make(**numbers), name=f'{key}({label})' if label else key)


def documentation(name: str) -> str:
  """The docstring of a divergence: what it is, formula, source."""
  return inspect.getdoc(REGISTRY[registry_lib.parse(name)[0]]) or ''


def aliases(name: str) -> tuple[str, ...]:
  """Other names of a divergence."""
  return REGISTRY.aliases(name)


def canonical(name: str) -> str:
  """The registered name behind a name or alias, without its numbers."""
  make = REGISTRY[registry_lib.parse(name)[0]]
  return next(key for key in REGISTRY if REGISTRY[key] is make)


def _at_once(function, x: float) -> float:
  """In float64, and now even while a jitted function is being traced."""
  with jax.ensure_compile_time_eval(), jax.enable_x64(True):
    return float(function(jnp.float64(x)))


def _derivative(function, x):
  """d function / dx, elementwise."""
  x = jnp.asarray(x)
  return jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def _with_slope(generator, slope):
  """The generator with its derivative taken from the slope."""
  if isinstance(generator, jax.custom_jvp):
    return generator  # dataclasses.replace passes here a second time
  function = jax.custom_jvp(functools.wraps(generator)(lambda d: generator(d)))

  @function.defjvp
  def _(primals, tangents):
    (d,), (tangent,) = primals, tangents
    return function(d), jnp.exp(d) * slope(d) * tangent
  return function
