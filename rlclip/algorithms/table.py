"""The table of published names, and how a row's numbers are replaced."""
import dataclasses
import inspect
from typing import Any, Callable, NamedTuple

from rlclip import advantages
from rlclip import registry as registry_lib
from rlclip.losses import dials, LossSpec, mismatch, Penalty, reduce
from rlclip.trust_region import bounds, gates


class Row(NamedTuple):
  make: Callable[[], LossSpec]
  trust: str  # a key of TRUST


TRUST = {
    'PDF': 'read in full in the paper',
    'CODE': 'read in published source code',
    '2ND': 'second-hand, from notes and code of third parties',
    'GUESS': 'the formula is known, the defaults are ours',
    'TEXTBOOK': 'common knowledge',
}


REGISTRY = registry_lib.Registry('algorithm', package='rlclip.algorithms')

# How a string becomes a value of the axis.
_AXES = {
    **{axis: lambda name, table=table: table[name]() for axis, table in (
        ('bounds', bounds.REGISTRY), ('gate', gates.REGISTRY),
        ('mismatch', mismatch.REGISTRY), ('reduction', reduce.REGISTRY))},
    'penalty': Penalty, 'width_dial': dials.get, 'beta_dial': dials.get}


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


def row(name: str, *aliases: str, trust: str):
  """Decorator that files a point under its published name."""
  def add(make):
    REGISTRY.register(name, *aliases)(Row(make, trust))
    return make
  return add
