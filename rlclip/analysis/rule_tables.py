"""Numbers that show what a rule does: one table a rule, by kind of rule.

  (w, A) -> loss and gradient, for all that act on a ratio
  f(w) and the interval of a budget, for divergences
  weights of tokens, for reductions; advantages of a group, for advantages
"""
import inspect
import math
from typing import Any, Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import advantages, divergences, losses
from rlclip.analysis import gradient_map, rules

_RATIOS = (0.1, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 5.0, 20.0)
_BUDGETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.5, 2.0)
_GROUP = 8


def variable(rule: rules.Rule) -> tuple[str, gradient_map.Setting]:
  """What varies, 'w' or 'k' = old / behavior, and what else is there."""
  if rule.kind == 'mismatch':
    return 'k', gradient_map.Setting(moves='old')
  if rule.kind == 'level':
    return 'w', gradient_map.Setting(num_tokens=4)
  return 'w', gradient_map.Setting()


def advantages_of(rule: rules.Rule) -> tuple[float, ...]:
  """A of the columns; 0 shows a penalty by itself."""
  return (1.0, -1.0, 0.0) if rule.kind == 'penalty' else (1.0, -1.0)


def signed(advantage: float) -> str:
  """'+1', '-1' or '0'."""
  return f'{advantage:+g}' if advantage else '0'


def ratios_of(rule: rules.Rule) -> np.ndarray:
  """Ratios on both sides of every change, and some far out."""
  _, setting = variable(rule)
  changes = {span.low for a in advantages_of(rule)
             for span in gradient_map.spans(rule.spec, a, setting)[1:]}
  if rule.kind != 'mismatch':
    changes.update(ends_of(rule.spec))
  ratios = set(_RATIOS)
  for end in changes:
    if 1 / gradient_map.LIMIT < end < gradient_map.LIMIT and (
        abs(end - 1) > 1e-9):
      ratios.update(_rounded(end ** share) for share in (0.9, 1.1))
  return np.array(sorted(ratios))


def ends_of(spec: losses.LossSpec) -> tuple[float, ...]:
  """Ends of the interval, where there is one that depends on nothing."""
  interval = getattr(spec.bounds, 'interval', None)
  if interval is None or inspect.signature(interval).parameters:
    return ()
  return interval()


def table(rule: rules.Rule) -> list[str]:
  """Loss and gradient at some ratios, and what else the token meets."""
  if rule.spec is None:
    return []
  symbol, setting = variable(rule)
  try:
    ratios = ratios_of(rule)
    curves = [gradient_map.curve(rule.spec, a, ratios, setting)
              for a in advantages_of(rule)]
  except (TypeError, ValueError):
    return []  # said where the gradient is told
  heads, cells = [f'{symbol:>10}'], [_ratios(ratios)]
  for a, found in zip(advantages_of(rule), curves, strict=True):
    heads += [f'{f"loss, A = {signed(a)}":>16}', f'{"gradient":>12}']
    cells += [_column(found.losses), _column(found.gradients)]
  rows = [''.join(f'{cell:>{len(head)}}' for head, cell in zip(
      heads, row, strict=True)) for row in zip(*cells, strict=True)]
  return [''.join(heads), *rows, '', *_circumstances(rule, setting)]


def divergence(rule: rules.Rule) -> tuple[str, list[str]]:
  """f, its slope and its weight as a penalty; the interval of budgets."""
  measure = divergences.get(rule.name)
  ratios = np.array(_RATIOS)
  with jax.enable_x64(True):
    d = jnp.log(jnp.asarray(ratios, jnp.float64))
    values = [_column(np.asarray(f(d))) for f in (
        measure.generator, measure.slope, measure.weight)]
  ends = list(zip(*map(measure.interval, _BUDGETS), strict=True))
  missing = [''] * (len(ratios) - len(_BUDGETS))
  table = {
      'w': _ratios(ratios), 'f(w)': values[0], "f'(w)": values[1],
      "w f'(w)": values[2],
      'delta': [*(f'{delta:g}' for delta in _BUDGETS), *missing],
      'low': [*_column(np.array(ends[0])), *missing],
      'high': [*_column(np.array(ends[1])), *missing]}
  lines = [''.join(f'{cell:>12}' for cell in row).rstrip()
           for row in (tuple(table), *zip(*table.values(), strict=True))]
  return 'The generator, and the interval f(w) <= delta', lines


def reduction(rule: rules.Rule) -> tuple[str, list[str]]:
  """What a token and a completion weigh in a batch of two lengths."""
  lengths = (2, 8)
  mask = jnp.arange(max(lengths))[None] < jnp.array(lengths)[:, None]
  weights = rule.value(mask)
  tokens = np.asarray(weights.tokens / weights.total)
  lines = [f'{"tokens":>10}{"a token weighs":>18}{"the completion":>18}']
  lines += [f'{n:>10}{_number(row[0]):>18}{_number(row.sum()):>18}'
            for n, row in zip(lengths, tokens, strict=True)]
  loss = np.array([[3.0], [1.0]])
  return 'Two completions, of 2 and 8 tokens', [
      *lines, '', '  With a loss of 3 at each of the 2 tokens and of 1 at each '
      f'of the 8: {_number((tokens * loss).sum())}.']


def advantage(rule: rules.Rule) -> tuple[str, list[str]]:
  """Advantages of success and failure by the successes of a group."""
  function = advantages.get(rule.name)
  counts = (1, 2, 4, 7, 8)
  rewards = (np.arange(_GROUP)[None] < np.array(counts)[:, None]).astype(float)
  title = f'Groups of {_GROUP} with c rewards of 1, the others 0'
  try:
    together = np.asarray(function(rewards))
    alone = np.concatenate([np.asarray(function(row[None])) for row in rewards])
  except (TypeError, ValueError) as error:
    return title, [f'  Not computed. {error}']
  rows = [f'{"c":>10}{"success":>15}{"failure":>15}']
  rows += [f'{c:>10}{_number(row[0]):>15}' + (
      f'{_number(row[-1]):>15}' if c < _GROUP else f'{"":>15}').rstrip()
           for c, row in zip(counts, together, strict=True)]
  if not np.allclose(together, alone):
    rows += ['', f'  It depends on the other groups; here the batch is these '
                 f'{len(counts)}.']
  return title, rows


OWN: Mapping[str, Callable[[rules.Rule], tuple[str, list[str]]]] = {
    'divergence': divergence, 'reduction': reduction, 'advantage': advantage}


def _circumstances(rule, setting) -> list[str]:
  """What stands still while the ratio moves."""
  spec = rule.spec
  said = [f'A token of probability {setting.probability:g} under sampler, '
          'old policy and reference.']
  if setting.moves == 'old':
    said = ['The policy is the old one, w = 1, and k = old / behavior moves.']
  if setting.num_tokens > 1:
    said.append(f'One of {setting.num_tokens} tokens of a row, the others at '
                'w = 1; loss and gradient are those of the row.')
  elif spec.level != 'token':
    said.append(f'Level {spec.level}: the sequence has this one token, so '
                "its ratio is the token's.")
  if spec.needs_rewards:
    said.append(f'The only success of a group of {gradient_map.SIZE} where '
                'A = +1, a failure beside one success where A = -1.')
  asked = gradient_map.statistics_of(spec)
  if asked:
    measures = ' and '.join(
        f'{s.measure}(policy || {s.toward})' for s in asked)
    said.append(f'It reads {measures} of whole distributions, which do not '
                'follow from w: here of two tokens, this one and the rest.')
  if whole_batch(spec):
    said.append('It looks at the whole batch: here that is this one token.')
  return [f'  {sentence}' for sentence in said]


def whole_batch(spec: Any) -> bool:
  """Whether a token's gradient depends on other rows."""
  return any(getattr(part, 'whole_batch', False)
             for part in (spec.bounds, spec.gate))


def _rounded(ratio):
  """Two digits of the distance from 1."""
  digits = 1 - math.floor(math.log10(abs(ratio - 1)))
  return round(ratio, digits)


def _number(value, digits=4):
  """Four significant digits; what rounding left of 0 is 0."""
  value = float(value)
  return '0' if abs(value) < 1e-14 else f'{value:.{digits}g}'


def _column(values):
  """Numbers of a column, four decimals where they suit all of them."""
  size = np.abs(values[(np.abs(values) > 1e-14) & np.isfinite(values)])
  suited = size.size == 0 or (size.min() > 1e-3 and size.max() < 1e4)
  return ['0' if abs(v) < 1e-14 else f'{v:.4f}' if suited else f'{v:.4g}'
          for v in map(float, values)]


def _ratios(values):
  """Ratios with as many decimals as the finest of them needs."""
  texts = [f'{value:.9f}'.rstrip('0').partition('.')[2] for value in values]
  return [f'{value:.{max(map(len, texts))}f}' for value in values]
