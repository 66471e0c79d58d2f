"""Everything with a name in the space of rules, found and described alike.

A Rule is one name of one kind (an axis, or an algorithm, which is a point on
all of them) with the parts of its docstring and a LossSpec that shows it. The
kinds read their registries: what is registered is found without an edit here.
"""
import dataclasses
import difflib
import inspect
import itertools
import re
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from rlclip import advantages, algorithms, divergences, registry
from rlclip.analysis import docstrings
from rlclip.losses import LossSpec, mismatch, Penalty
from rlclip.losses import penalty as penalty_lib
from rlclip.losses import reduce
from rlclip.losses import spec as spec_lib
from rlclip.trust_region import bounds, gates, levels


@dataclasses.dataclass(frozen=True)
class Rule:
  """One name, described.

  Attributes:
    kind: a key of KINDS.
    name: as registered, with the numbers it was asked for with.
    aliases: other names.
    doc: the parts of its docstring.
    value: the thing itself: a LossSpec of an algorithm, a gate, a function.
    spec: a rule that shows it, or None where there is none.
    trust: how well its source is known; '' where nothing is said.
  """
  kind: str
  name: str
  aliases: tuple[str, ...]
  doc: docstrings.Docstring
  value: Any
  spec: LossSpec | None
  trust: str

  @property
  def base(self) -> str:
    """The name without numbers."""
    return self.name.partition('(')[0]


class Kind(NamedTuple):
  """How the names of one kind are listed, described and shown."""
  title: str
  names: Callable[[], tuple[str, ...]]
  aliases: Callable[[str], tuple[str, ...]]
  documented: Callable[[str], Any]  # what has the docstring
  make: Callable[..., Any]  # (name, **numbers) -> value
  show: Callable[[Any], LossSpec | None]


class UnknownName(ValueError):
  """No kind has this name."""


def names(kind: str | None = None) -> tuple[tuple[str, str], ...]:
  """(kind, name) of everything, or of one kind, in the order of KINDS."""
  return tuple((k, name) for k in KINDS if kind in (None, k)
               for name in KINDS[k].names())


def find(text: str) -> Rule:
  """The rule of this name; the first kind in KINDS wins.

  Args:
    text: a name or alias, perhaps with numbers ('alpha(order=0.25)') or a
      kind before it ('gate:none').

  Raises:
    UnknownName: with the nearest names, where there is none.
    ValueError: for numbers that it does not take.
  """
  found = meanings(text)
  if not found:
    near = ', '.join(nearest(text))
    raise UnknownName(f'Unknown name {text!r}. ' + (
        f'Nearest: {near}.' if near else 'Without a name all are listed.'))
  kind, name = found[0]
  return describe(kind, name, **registry.parse(_split(text)[1])[1])


def meanings(text: str) -> tuple[tuple[str, str], ...]:
  """(kind, registered name) of all that a text may stand for."""
  prefix, rest = _split(text)
  base = registry.parse(rest)[0]
  return tuple(
      (kind, name) for kind, name in names()
      if prefix in ('', kind.rstrip('s'))
      and (base == name or base in KINDS[kind].aliases(name)))


def nearest(text: str) -> list[str]:
  """Names that another may have meant, the likeliest first.

  Those spelled alike, and those whose docstrings mention it, as a method is
  often known by another name than its parts.
  """
  prefix, rest = _split(text)
  base = registry.parse(rest.partition('(')[0])[0]
  known, mentioned = {}, []
  word = re.compile(rf'\b{re.escape(base)}\b', re.IGNORECASE)
  for kind, name in names():
    if prefix not in ('', kind.rstrip('s')):
      continue
    for key in (name, *KINDS[kind].aliases(name)):
      known.setdefault(key, f'{key} ({kind})')
    if len(base) > 2 and word.search(_text(KINDS[kind].documented(name))):
      mentioned.append(name)
  plain = base.lower().replace('-', '_')
  close = lambda cutoff: difflib.get_close_matches(plain, known, 5, cutoff)
  within = [key for key in known if len(plain) > 2 and plain in key]
  keys = dict.fromkeys([*close(0.8), *within, *mentioned, *close(0.5)])
  return [known[key] for key in keys][:8]


def describe(kind: str, name: str, **numbers: float) -> Rule:
  """The Rule of a registered name.

  Raises:
    ValueError: for numbers that it does not take.
  """
  entry = KINDS[kind]
  doc = docstrings.read(entry.documented(name))
  if kind == 'penalty':
    doc = doc._replace(numbers=docstrings.read(Penalty).numbers)
  try:
    value = entry.make(name, **numbers)
  except TypeError as error:
    raise ValueError(f'{name} with {numbers}: {error}') from error
  inner = ', '.join(f'{k}={v:g}' for k, v in numbers.items())
  trust = algorithms.trust(name) if kind == 'algorithm' else doc.trust
  return Rule(
      kind=kind, name=f'{name}({inner})' if inner else name,
      aliases=entry.aliases(name), doc=doc, value=value,
      spec=None if value is None else entry.show(value), trust=trust)


def label(value: Any) -> str:
  """A value of an axis in one line: fixed(eps_low=0.2, eps_high=0.28)."""
  if isinstance(value, float):
    return f'{value:.4g}'
  if isinstance(value, tuple):
    return '[' + ', '.join(map(label, value)) + ']'
  if not dataclasses.is_dataclass(value):
    return 'none' if value is None else str(value)
  fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
  name = fields.pop('measure') if isinstance(value, Penalty) else (
      name_of(value)[1])
  inner = ', '.join(f'{k}={label(v)}' for k, v in fields.items())
  return f'{name}({inner})' if inner else name


def name_of(value: Any) -> tuple[str, str]:
  """(kind, name) of an instance of a registered class."""
  for kind, table in _CLASSES.items():
    for name in table:
      if table[name] is type(value):
        return kind, name
  return '', type(value).__name__


def canonical(measure: str) -> str:
  """The registered name of a divergence, without numbers."""
  return divergences.canonical(measure)


def accepted(fixed: Mapping[str, Any], **tried: Any) -> LossSpec | None:
  """The first LossSpec that makes sense.

  Args:
    fixed: axes that are given.
    **tried: for other axes, the values to try; the first axis changes last.

  Returns:
    The LossSpec, or None where every combination is refused.
  """
  for values in itertools.product(*tried.values()):
    try:
      return LossSpec(**fixed, **dict(zip(tried, values, strict=True)))
    except ValueError:
      continue
  return None


def instances(kind: str) -> Iterator[Any]:
  """Every registered class of an axis at its defaults, where it has them."""
  for name in _CLASSES[kind]:
    value = _instance(kind, name)
    if value is not None:
      yield value


def _text(documented):
  return documented if isinstance(documented, str) else (
      inspect.getdoc(documented) or '')


def _split(text):
  """('gate', 'none') of 'gates:none'; the kind is '' where none is given."""
  prefix, colon, rest = text.partition(':')
  if not colon:
    return '', text
  return prefix.strip().lower().rstrip('s'), rest.strip()


def _instance(kind, name, **numbers):
  """At its defaults; else as an algorithm has it; else None."""
  made = _CLASSES[kind][name]
  required = [p for p in inspect.signature(made).parameters.values()
              if p.default is p.empty]
  if numbers or not required:
    return made(**numbers)
  return next((getattr(algorithms.get(a), kind) for a in algorithms.names()
               if type(getattr(algorithms.get(a), kind)) is made), None)


def _show_gate(gate):
  return accepted(
      {'gate': gate}, level=('token', *levels.REGISTRY),
      bounds=[_PLAIN.bounds, None, *instances('bounds')],
      anchor=spec_lib.ANCHORS)


def _show_bounds(region):
  return accepted(
      {'bounds': region}, level=('token', *levels.REGISTRY),
      gate=[_PLAIN.gate, *instances('gate')],
      anchor=spec_lib.ANCHORS)


def _show_level(level):
  return accepted(
      {'level': level}, gate=[_PLAIN.gate, *instances('gate')],
      bounds=[_PLAIN.bounds, None, *instances('bounds')],
      reduction=tuple(instances('reduction')))


def _show_mismatch(correction):
  return accepted({'mismatch': correction, 'anchor': 'old'},
                  level=('token', *levels.REGISTRY))


def _show_divergence(value):
  # A measure that is no function of the ratio has no interval of it.
  try:
    return LossSpec(bounds=bounds.FromDivergence(value.name))
  except ValueError:
    return None


def _show_penalty(penalty):
  return accepted(
      {'penalty': penalty, 'bounds': None, 'gate': gates.REGISTRY['none']()},
      anchor=spec_lib.ANCHORS)


def _penalties():
  """Penalties by short name: RPG's four, and the estimators, beta 1."""
  short = {}
  for name in algorithms.names():
    prefix, _, variant = name.partition('_')
    if prefix == 'rpg' and '_' not in variant:
      penalty = algorithms.get(name).penalty
      short[variant] = Penalty(penalty.measure, 1.0, toward=penalty.toward,
                               control_variate=penalty.control_variate)
  for estimator in penalty_lib.ESTIMATORS:
    for measure, placement in itertools.product(
        (Penalty().measure, *divergences.names()), penalty_lib.PLACEMENTS):
      try:
        short[estimator] = Penalty(
            measure, 1.0, estimator=estimator, placement=placement)
        break
      except ValueError:
        continue
  return short


def _make_penalty(name, **numbers):
  return dataclasses.replace(_penalties()[name], **numbers)


def _penalty_text(name):
  """The estimator's sentence, or the divergence's docstring; the source."""
  shared = docstrings.read(Penalty)
  if name in penalty_lib.ESTIMATORS:
    body = str(penalty_lib.ESTIMATORS[name]).replace(';', '.').split('.')
    sentences = '. '.join(s.strip()[:1].upper() + s.strip()[1:] for s in body)
    return f'{sentences.strip()}.\n\nSource: {shared.source}'
  penalty = _penalties()[name]
  shift = penalty.control_variate
  form = f'{shift:+g} (w - 1)' if shift else 'no control variate'
  text = divergences.documentation(penalty.measure).partition('Source:')[0]
  return (f'The penalty {penalty.measure}(policy || policy that samples), '
          f'{form}.\n\n{text}\nSource: {shared.source}')


def _advantage_aliases(name):
  # A module that does not list its aliases still answers to them.
  listed = getattr(advantages, 'aliases', None)
  return listed(name) if listed else ()


def _function(name):
  made = advantages.get(name)
  return getattr(made, 'func', made)


def _axis(title, kind, show):
  """A kind whose registry holds frozen dataclasses."""
  table = _CLASSES[kind]
  return Kind(title, table.names, table.aliases, lambda name: table[name],
              lambda name, **numbers: _instance(kind, name, **numbers), show)


_PLAIN = LossSpec()
_CLASSES = {'bounds': bounds.REGISTRY, 'gate': gates.REGISTRY,
            'mismatch': mismatch.REGISTRY, 'reduction': reduce.REGISTRY}

KINDS: Mapping[str, Kind] = {
    'algorithm': Kind(
        'Algorithms', algorithms.names, algorithms.aliases,
        algorithms.documentation, algorithms.get, lambda spec: spec),
    'divergence': Kind(
        'Divergences', divergences.names, divergences.aliases,
        divergences.documentation, divergences.get, _show_divergence),
    'bounds': _axis('Bounds', 'bounds', _show_bounds),
    'gate': _axis('Gates', 'gate', _show_gate),
    'level': Kind(
        'Levels', levels.REGISTRY.names, levels.REGISTRY.aliases,
        lambda name: levels.REGISTRY[name], lambda name: name, _show_level),
    'penalty': Kind(
        'Penalties', lambda: tuple(_penalties()), lambda name: (),
        _penalty_text, _make_penalty, _show_penalty),
    'mismatch': _axis('Mismatch corrections', 'mismatch', _show_mismatch),
    'reduction': _axis('Reductions', 'reduction', lambda value: None),
    'advantage': Kind(
        'Advantages', advantages.names, _advantage_aliases, _function,
        lambda name, **numbers: advantages.get(
            f'{name}({", ".join(f"{k}={v}" for k, v in numbers.items())})'
            if numbers else name),
        lambda value: None),
}
