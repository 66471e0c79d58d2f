"""What a rule refuses, found by asking it.

Beside what docstrings say: what its class says of itself, the combinations
that LossSpec refuses, and the numbers that the rule refuses, each tried.
"""
import collections
import dataclasses
import inspect
import itertools
import math
from typing import Any, Iterator

from rlclip import advantages, divergences
from rlclip.analysis import gradient_map, rule_tables, rules
from rlclip.losses import LossSpec, Penalty
from rlclip.losses import penalty as penalty_lib
from rlclip.trust_region import levels

_ODD = (-1.0, 0.0, 1.0, math.inf, math.nan)


def defaults(rule: rules.Rule) -> dict[str, Any]:
  """Hyperparameters and their values, by name."""
  if rule.kind == 'algorithm':
    return {}
  if dataclasses.is_dataclass(rule.value) and rule.kind != 'divergence':
    return {field.name: getattr(rule.value, field.name)
            for field in dataclasses.fields(rule.value)}
  made = {'divergence': lambda: divergences.REGISTRY[rule.base],
          'advantage': lambda: rules.KINDS['advantage'].documented(rule.base)}
  if rule.kind not in made:
    return {}
  return {p.name: p.default
          for p in inspect.signature(made[rule.kind]()).parameters.values()
          if p.default is not p.empty}


def parts(rule: rules.Rule) -> Iterator[tuple[str, str]]:
  """(kind, name) of the rule, and of what it is made of."""
  yield rule.kind, rule.base
  if rule.kind == 'penalty' and rule.base not in penalty_lib.ESTIMATORS:
    yield from _parts_of(rule.value)
  elif rule.kind == 'bounds':
    yield from list(_parts_of(rule.value))[1:]
  if rule.kind == 'algorithm':
    for field in dataclasses.fields(LossSpec):
      value = getattr(rule.spec, field.name)
      if isinstance(value, str) and field.name in rules.KINDS:
        yield field.name, value.partition('(')[0]
      elif dataclasses.is_dataclass(value):
        yield from _parts_of(value)


def _parts_of(value):
  """What a value of an axis is, and the rules in it."""
  if isinstance(value, Penalty):
    yield 'penalty', value.estimator
    yield 'divergence', rules.canonical(value.measure)
    return
  yield rules.name_of(value)
  # Bounds of a divergence, and bounds made of bounds.
  for field in dataclasses.fields(value):
    inner = getattr(value, field.name)
    if field.name == 'divergence':
      yield 'divergence', rules.canonical(inner)
    elif dataclasses.is_dataclass(inner):
      yield from _parts_of(inner)


def limits(rule: rules.Rule) -> Iterator[str]:
  """What a rule needs and refuses, one sentence each."""
  if rule.spec is not None and rule.kind in ('algorithm', 'bounds', 'gate'):
    yield from _needs(rule.spec if rule.kind == 'algorithm'
                      else _only(rule))
  yield from _OF.get(rule.kind, lambda rule: ())(rule)
  refused = _refused_numbers(rule)
  if refused:
    yield f'Refused numbers: {"; ".join(refused)}.'


def _only(rule):
  """A spec with this one part, as far as it may be asked."""
  return rule.spec if rule.kind == 'bounds' else dataclasses.replace(
      rule.spec, penalty=None)


def _needs(spec):
  if spec.needs_rewards:
    yield "Needs rewards and the groups of a prompt's rows."
  if spec.needs_reference:
    yield 'Needs the log-probs of a reference policy.'
  if spec.needs_old:
    yield ("Needs the learner's own log-probs of the batch's weights (anchor "
           "'old').")
  asked = gradient_map.statistics_of(spec)
  if asked:
    yield ('Needs the whole distribution at a position: ' + ', '.join(
        f'{s.measure} of policy and {s.toward}'
        + (f' over {s.top_k} tokens and the rest' if s.top_k else '')
        for s in asked) + '.')
  if rule_tables.whole_batch(spec):
    yield 'Needs the whole batch: it may not be cut into micro-batches.'


def _of_gate(rule):
  gate = rule.value
  if not gate.uses_bounds:
    yield 'Reads no bounds, and a rule that gives some is refused.'
  else:
    yield from _refused('bounds', rules.instances('bounds'), rule)
  yield from _refused('level', levels.REGISTRY, rule)
  if not gate.takes_inside:
    yield 'Takes no penalty inside the advantage.'


def _of_bounds(rule):
  if not rule.value.has_ends:
    yield 'It says in or out and has no ends that a gate could clip to.'
  yield from _refused('gate', (
      gate for gate in rules.instances('gate') if gate.uses_bounds), rule)


def _of_level(rule):
  yield from _refused('gate', rules.instances('gate'), rule)


def _of_divergence(rule):
  refused = collections.defaultdict(list)
  for estimator, placement in itertools.product(
      penalty_lib.ESTIMATORS, penalty_lib.PLACEMENTS):
    try:
      Penalty(rule.name, estimator=estimator, placement=placement)
    except ValueError:
      refused[estimator].append(placement)
  if refused:
    yield 'Refused as a penalty: ' + ', '.join(
        estimator if len(places) == len(penalty_lib.PLACEMENTS)
        else f'{estimator} {" ".join(places)} the advantage'
        for estimator, places in refused.items()) + '.'


_OF = {'gate': _of_gate, 'bounds': _of_bounds, 'level': _of_level,
       'divergence': _of_divergence}


def _refused(axis, values, rule):
  """Values of another axis with which no LossSpec is accepted."""
  names = []
  for value in values:
    tried = {'bounds': [rule.spec.bounds, None], 'gate': [rule.spec.gate],
             'level': [rule.spec.level, *levels.REGISTRY],
             'anchor': ['behavior', 'old']}
    fixed = {axis: value, rule.kind: rule.value}
    if rules.accepted(fixed, **{
        k: v for k, v in tried.items() if k not in fixed}) is None:
      names.append(rules.name_of(value)[1] if dataclasses.is_dataclass(value)
                   else value)
  if names:
    yield f'Refused with {axis} {", ".join(names)}.'


def _refused_numbers(rule):
  """'delta = -1, 0, inf, nan' for every number that refuses some."""
  found = []
  for name, default in defaults(rule).items():
    if isinstance(default, bool) or not isinstance(default, float):
      continue
    odd = []
    for value in _ODD:
      try:
        _with(rule, name, value)
      except ValueError:
        odd.append(f'{value:g}')
    if odd:
      found.append(f'{name} = {", ".join(odd)}')
  return found


def _with(rule, name, value):
  if dataclasses.is_dataclass(rule.value) and rule.kind != 'divergence':
    return dataclasses.replace(rule.value, **{name: value})
  if rule.kind == 'divergence':
    return divergences.get(rule.base, **{name: value})
  return advantages.get(rule.base)
