"""A rule that shows each value of each axis, by keys such as 'gate:dual_clip'.

A value is put into the first combination of the other axes that takes it.
"""
import functools
import itertools
from typing import Any, Callable, Iterator, NamedTuple

from rlclip import algorithms, divergences, registry
from rlclip.losses import LossSpec, mismatch, Penalty
from rlclip.losses import penalty as penalty_lib
from rlclip.losses import reduce
from rlclip.trust_region import bounds, gates, levels


class _Kind(NamedTuple):
  names: Callable[[], tuple[str, ...]]
  find: Callable[[str], Any]  # by name or alias, of what is registered
  options: Callable[[str], dict]  # fields of the LossSpec


def _registered(table, make):
  return _Kind(table.names, table.__getitem__, lambda n: make(table[n]))


_KINDS = {
    'algorithm': _Kind(
        algorithms.names, algorithms.REGISTRY.__getitem__,
        lambda n: vars(algorithms.get(n))),
    'divergence': _Kind(
        divergences.names, divergences.REGISTRY.__getitem__,
        lambda n: {'bounds': bounds.FromDivergence(n)}),
    'bounds': _registered(bounds.REGISTRY, lambda x: {'bounds': x()}),
    'gate': _registered(gates.REGISTRY, lambda x: {'gate': x()}),
    'level': _Kind(levels.REGISTRY.names, levels.REGISTRY.__getitem__,
                   lambda n: {'level': n}),
    'mismatch': _registered(
        mismatch.REGISTRY, lambda x: {'mismatch': x(), 'anchor': 'old'}),
    'reduction': _registered(reduce.REGISTRY, lambda x: {'reduction': x()}),
    'penalty': _Kind(
        lambda: tuple(sorted(penalty_lib.ESTIMATORS)),
        penalty_lib.ESTIMATORS.__getitem__, lambda n: {
            'penalty': Penalty('reverse_kl', 0.1, toward='anchor',
                               estimator=n)}),
}


def kinds() -> tuple[str, ...]:
  """What `keys` and `spec` know, as before the colon of a key."""
  return tuple(_KINDS)


def keys(*of: str) -> tuple[str, ...]:
  """'kind:name' of everything registered under these kinds; none: of all."""
  return tuple(f'{kind}:{name}' for kind in of or _KINDS
               for name in _KINDS[kind].names())


def distinct_keys() -> tuple[str, ...]:
  """Keys of all algorithms, and of values that no algorithm has.

  Enough to see every value of every axis that a LossSpec has.
  """
  def value(of):
    kind = of.partition(':')[0]
    shown = getattr(spec(of), kind)
    if kind == 'penalty':
      return kind, shown.estimator
    return kind, shown if isinstance(shown, str) else type(shown)

  axes = [kind for kind in _KINDS if kind not in ('algorithm', 'divergence')]
  seen = set()
  for shown in map(spec, keys('algorithm')):
    seen |= {(kind, type(getattr(shown, kind))) for kind in axes}
    seen |= {('level', shown.level),
             ('penalty', getattr(shown.penalty, 'estimator', None))}
  return keys('algorithm') + tuple(
      of for of in keys(*axes) if value(of) not in seen)


def key(kind: str, name: str) -> str:
  """The key of a name, an alias, or a name with numbers.

  Raises:
    ValueError: for an unknown kind or name.
  """
  if kind not in _KINDS:
    raise ValueError(
        f'Expected a kind among {", ".join(_KINDS)}, got {kind!r}.')
  names, find, _ = _KINDS[kind]
  base = registry.parse(name)[0]
  if base in names():
    return f'{kind}:{base}'
  entry = find(base)
  return next(f'{kind}:{n}' for n in names() if find(n) is entry)


@functools.lru_cache(maxsize=None)
def spec(of: str) -> LossSpec:
  """A rule with this value, at its defaults.

  Args:
    of: a key, as 'algorithm:grpo' or 'level:sequence'.

  Returns:
    The LossSpec.

  Raises:
    ValueError: if no combination takes the value.
  """
  kind, _, name = of.partition(':')
  options = _KINDS[kind].options(name)
  refusals = []
  for rest in _combinations():
    try:
      return LossSpec(**{**rest, **options})
    except ValueError as refusal:
      refusals.append(str(refusal))
  raise ValueError(f'No rule takes {of}: {refusals[0]}')


def _combinations() -> Iterator[dict]:
  """Plain choices first."""
  gate_kinds = (gates.PessimisticMin, gates.Unconditional, gates.Unclipped,
                *(gates.REGISTRY[name] for name in gates.REGISTRY))
  regions = (bounds.Fixed(), None)
  for level, region, gate in itertools.product(
      ('token', *levels.REGISTRY), regions, gate_kinds):
    yield {'level': level, 'gate': gate(), 'bounds': region}
