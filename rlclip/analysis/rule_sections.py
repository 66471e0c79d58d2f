"""What there is to say about a rule, as sections of plain text.

The same sections are printed and written to the reference pages. Figures have
four significant digits (ratios near 1: of w - 1), so that they do not depend
on the machine.
"""
import dataclasses
import inspect
import math
import re
import textwrap
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from rlclip.analysis import (docstrings, gradient_map, peers, rule_limits,
                             rule_tables, rules)
from rlclip.losses import LossSpec
from rlclip.losses import penalty as penalty_lib
from rlclip.oracle import certificates

WIDTH = 96
_SIGNS = {0: 'zero', -1: 'pushes log p up', 1: 'pushes log p down'}
_PROBABILITIES = (0.01, 0.1, 0.5, 0.9)


class Section(NamedTuple):
  """A heading and what stands under it.

  Attributes:
    title: '' for what comes first.
    lines: at most WIDTH columns each.
    is_table: whether the line breaks matter.
    is_long: whether a page of many rules may leave it out.
  """
  title: str
  lines: tuple[str, ...]
  is_table: bool = True
  is_long: bool = False


def sections(rule: rules.Rule) -> Iterator[Section]:
  """Everything about a rule, in the order in which it is read."""
  parts: tuple[Callable[[rules.Rule], Any], ...] = (
      _what, _formula, _axes, _numbers, _interval, _zeros, _by_probability,
      _by_group, _table, _own_table, _limits, _certificates, _source,
      _elsewhere)
  for part in parts:
    section = part(rule)
    if section is not None and section.lines:
      yield section


def wrap(text: str, indent: str = '', first: str | None = None) -> list[str]:
  """Lines of at most WIDTH columns."""
  return textwrap.wrap(
      text, WIDTH, initial_indent=indent if first is None else first,
      subsequent_indent=indent, break_on_hyphens=False,
      break_long_words=False)


def columns(rows: Sequence[Sequence[str]], indent: str = '') -> list[str]:
  """Left-aligned columns; the last one is wrapped."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
  lines = []
  for *cells, last in rows:
    head = indent + ''.join(
        f'{cell:<{width}}  ' for cell, width in zip(cells, widths, strict=True))
    lines.extend(line.rstrip() for line in wrap(
        last or '-', ' ' * len(head), head))
  return lines


def ratio_text(value: float) -> str:
  """Four significant digits, near 1 of the distance from 1."""
  if value <= 0 or math.isinf(value) or value == 1:
    return f'{value:g}'
  distance = abs(value - 1)
  if distance < 1e-9:
    return '1'
  if distance >= 1:
    return f'{value:.4g}'
  digits = min(max(3 - math.floor(math.log10(distance)), 4), 9)
  return f'{value:.{digits}f}'.rstrip('0').rstrip('.')


def regions(found: Sequence[gradient_map.Span], sign: int,
            symbol: str = 'w') -> str:
  """Where the gradient has a sign: 'w < 0.8, w > 1.2'."""
  bottom, top = found[0].low, found[-1].high
  parts = []
  for span in found:
    if span.sign != sign:
      continue
    low, high = ratio_text(span.low), ratio_text(span.high)
    if span.low == bottom and span.high == top:
      return 'everywhere'
    if span.low == bottom:
      parts.append(f'{symbol} < {high}')
    elif span.high == top:
      parts.append(f'{symbol} > {low}')
    elif low == high:
      parts.append(f'{symbol} = {low}')
    else:
      parts.append(f'{low} < {symbol} < {high}')
  return ', '.join(parts) or 'nowhere'


def _what(rule):
  return Section('', tuple(wrap(' '.join(
      (rule.doc.summary, *rule.doc.prose)))), is_table=False)


def _formula(rule):
  if rule.kind != 'algorithm':
    return Section('Formula', tuple(
        line for formula in rule.doc.formulas if formula != rule.doc.summary
        for line in wrap(formula, '    ', '  ')))
  rows = []
  for field in dataclasses.fields(rule.spec):
    value = getattr(rule.spec, field.name)
    for number, formula in enumerate(_formulas(field.name, value)):
      rows.append((field.name if number == 0 else '', formula))
  return Section('Formula', tuple(columns(rows, '  ')) if rows else ())


def _formulas(axis, value):
  """Formulas of an axis's value, from its docstring."""
  if axis == 'penalty' and value is not None:
    said = str(penalty_lib.ESTIMATORS[value.estimator])
    shift = value.control_variate
    yield (f'{value.beta:.4g} x {value.estimator}: {said}'
           + (f'; {shift:+g} (w - 1) besides' if shift else ''))
    if re.search(r"\bf'?\(", said):
      measure = rules.describe('divergence', rules.canonical(value.measure))
      yield from measure.doc.formulas[:1]
    return
  kind, name = rules.name_of(value)
  if isinstance(value, str) and axis in rules.KINDS:
    kind, name = axis, value.partition('(')[0]
  if kind:
    doc = docstrings.read(rules.KINDS[kind].documented(name))
    yield from doc.formulas or (doc.summary,)


def _axes(rule):
  if rule.spec is None:
    return None
  axes = {field.name: rules.label(getattr(rule.spec, field.name))
          for field in dataclasses.fields(LossSpec)}
  if rule.kind == 'algorithm':
    return Section('On each axis', tuple(columns(list(axes.items()), '  ')))
  own = 'bounds' if rule.kind == 'divergence' else rule.kind
  return Section('Shown with', tuple(wrap(', '.join(
      f'{axis} {text}' for axis, text in axes.items() if axis != own),
      '  ')))


def _numbers(rule):
  defaults = rule_limits.defaults(rule)
  rows = [(name, rules.label(value), rule.doc.numbers.get(name, ''))
          for name, value in defaults.items()]
  return Section('Numbers, and their defaults',
                 tuple(columns(rows, '  ')) if rows else ())


def _interval(rule):
  region = getattr(rule.spec, 'bounds', None)
  method = getattr(region, 'interval', None)
  if method is None or rule.kind not in ('algorithm', 'divergence', 'bounds'):
    return None
  low, high = method()
  notes = [f'{name} = {p.default:g}' for name, p in inspect.signature(
      method).parameters.items() if isinstance(p.default, (int, float))]
  said = docstrings.sentences(inspect.getdoc(method) or '')[:1]
  text = f'[{ratio_text(low)}, {ratio_text(high)}]'
  return Section('Interval of w at the default', tuple(wrap('   '.join(
      (text, *notes, *map(docstrings.one_line, said))), '  ')))


def _zeros(rule):
  if rule.spec is None:
    return None
  symbol, setting = rule_tables.variable(rule)
  rows = [('', *_SIGNS.values())]
  try:
    for note, spec in _shown(rule):
      for advantage in rule_tables.advantages_of(rule):
        found = gradient_map.spans(spec, advantage, setting)
        rows.append((f'A = {rule_tables.signed(advantage)}{note}', *(
            regions(found, sign, symbol) for sign in _SIGNS)))
  except (TypeError, ValueError) as error:
    return Section('Where the gradient is zero', tuple(
        wrap(f'Not drawn. {error}', '  ')))
  low, high = 1 / gradient_map.LIMIT, gradient_map.LIMIT
  return Section(
      f'Where the gradient is zero ({symbol} from {low:.4g} to {high:.4g})',
      tuple(columns(rows, '  ')))


def _shown(rule):
  """The rule, and again without what an algorithm adds beside its clip."""
  yield '', rule.spec
  penalty = rule.spec.penalty
  if (rule.kind == 'algorithm' and penalty is not None
      and penalty.placement == 'beside'):
    yield ', without the penalty', dataclasses.replace(rule.spec, penalty=None)


def _by_probability(rule):
  """Zeros by q, for the rules to which q matters."""
  symbol, setting = rule_tables.variable(rule)
  try:
    if rule.spec is None or symbol != 'w' or not any(
        gradient_map.depends_on_probability(rule.spec, a)
        for a in (1.0, -1.0)):
      return None
    return _by('q', "Zero gradient by the token's probability q "
               '(w is below 1 / q)',
               rule, [(f'{q:g}', setting._replace(probability=q))
                      for q in _PROBABILITIES])
  except (TypeError, ValueError):
    return None  # said where the gradient is told


def _by_group(rule):
  """Zeros by the successes of the group, for the rules that read rewards."""
  if rule.spec is None or not rule.spec.needs_rewards:
    return None
  _, setting = rule_tables.variable(rule)
  size = gradient_map.SIZE
  return _by('c', f'Zero gradient by the successes c of {size} in the group '
             '(A = +1: a success, A = -1: a failure)', rule,
             [(f'{c}', setting._replace(successes=c))
              for c in (1, 2, size // 2, size - 1)])


def _by(head, title, rule, settings):
  rows = [(head, 'A = +1', 'A = -1')]
  for text, setting in settings:
    rows.append((text, *(
        regions(gradient_map.spans(rule.spec, a, setting), 0)
        for a in (1.0, -1.0))))
  return Section(title, tuple(columns(rows, '  ')))


def _table(rule):
  made = _section('Loss and gradient by log p', rule_tables.table(rule))
  return made._replace(is_long=True)


def _own_table(rule):
  made = rule_tables.OWN.get(rule.kind)
  return made and _section(*made(rule))


def _section(title, lines):
  return Section(title, tuple(
      part for line in lines
      for part in ([line] if len(line) <= WIDTH else wrap(line.strip(), '  '))))


def _limits(rule):
  lines = []
  for limit in (*rule.doc.limits, *rule_limits.limits(rule)):
    lines.extend(wrap(limit, '    ', '  - '))
  return Section('Limits', tuple(lines))


def _certificates(rule):
  """Those of the rule itself, then by name those of what it is made of."""
  own, *others = rule_limits.parts(rule)
  said = _covering(*own)
  first = lambda text: docstrings.one_line(docstrings.sentences(text)[0])
  lines = columns([(name, first(certificates.documentation(name)))
                   for name in said], '  ') if said else []
  for kind, base in dict.fromkeys(others):
    more = [name for name in _covering(kind, base) if name not in said]
    if more:
      lines += wrap(', '.join(more), '    ', f'  of {kind} {base}: ')
  return Section('Certificates that cover it', tuple(lines or ['  none']))


def _covering(kind, name):
  try:
    return certificates.covering(kind, name)
  except (KeyError, ValueError):  # a kind without certificates
    return ()


def _source(rule):
  lines = wrap(rule.doc.source, '  ')
  if rule.trust:
    lines += wrap(f'Trust: {rule.trust}.', '  ')
  return Section('Source', tuple(lines))


def _elsewhere(rule):
  lines = []
  for peer in peers.names_elsewhere(rule.kind, rule.base):
    lines += wrap(peer.name, ' ' * 12, f'  {peer.library:<8}  ')
    lines += wrap(peer.note, ' ' * 14)
  return Section("Other libraries' names, and what they mean there",
                 tuple(lines))
