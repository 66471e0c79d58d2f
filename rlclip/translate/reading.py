"""Another library's config file: loaded, flattened, its defaults filled in."""
import difflib
import json
import pathlib
import re
from typing import Any, Callable, Collection, Mapping, NamedTuple

import yaml


class Option(NamedTuple):
  """An option that is looked at.

  Attributes:
    default: the library's; None where the option may be null.
    kind: makes the value, or raises.
    nullable: whether it may be null although its default is not.
  """
  default: Any
  kind: Callable[[Any], Any]
  nullable: bool = False


class Reading(NamedTuple):
  """What a file says, seen with a library's options.

  Attributes:
    values: every option looked at, from the file or by default.
    given: those that the file sets.
    unseen: names of `known` that the file has, a section's once, and how many
      of its keys they cover; they say nothing about the update rule.
    unknown: keys that are neither, each with a close name or ''.
    unresolved: options whose value refers to something outside of the file;
      the default stands in.
  """
  values: Mapping[str, Any]
  given: frozenset[str]
  unseen: Mapping[str, int]
  unknown: tuple[tuple[str, str], ...]
  unresolved: tuple[str, ...]


def load(path: str) -> dict[str, Any]:
  """The keys of a YAML or JSON file, nested ones joined by dots.

  Raises:
    ValueError: if there is no such file, or it does not hold keys and values.
  """
  file = pathlib.Path(path)
  if not file.is_file():
    raise ValueError(f'Expected a YAML or JSON file, found none at {path}.')
  text = file.read_text(encoding='utf-8')
  try:
    tree = json.loads(text) if file.suffix == '.json' else yaml.safe_load(text)
  except (ValueError, yaml.YAMLError) as error:
    raise ValueError(f'{path} is neither YAML nor JSON: {error}') from error
  if not isinstance(tree, dict):
    raise ValueError(
        f'{path} should hold keys and values, as `beta: 0.04`, and holds a '
        f'{type(tree).__name__}.')
  return _flatten(tree)


def fill(flat: Mapping[str, Any], options: Mapping[str, Option],
         known: Collection[str], old: Collection[str] = ()) -> Reading:
  """Sorts a file's keys, and takes what is missing from the defaults.

  Args:
    flat: from `load`, renamed to the names in `options`.
    options: those that are looked at.
    known: further keys of the library; one that stands for a section covers
      what is below it.
    old: former names of options, for hints.

  Returns:
    The Reading.

  Raises:
    ValueError: for a value of the wrong kind.
  """
  values = {name: option.default for name, option in options.items()}
  given, unseen, unknown, unresolved = set(), {}, [], []
  for key, value in flat.items():
    if key in options:
      value, resolved = _resolve(value, flat)
      if resolved:
        values[key] = _convert(key, value, options[key])
        given.add(key)
      else:
        unresolved.append(key)
    elif name := _covering(key, known):
      unseen[name] = unseen.get(name, 0) + 1
    else:
      unknown.append(
          (key, _close(key, [*options, *old]) or _close(key, [*known])))
  return Reading(values, frozenset(given), unseen, tuple(unknown),
                 tuple(unresolved))


def number(value: Any) -> float:
  """A float; YAML reads 1e-4, which has no dot, as text."""
  if isinstance(value, bool):
    raise ValueError('a number')
  return float(value)


def count(value: Any) -> int:
  """A whole number."""
  if isinstance(value, bool) or float(value) != int(float(value)):
    raise ValueError('a whole number')
  return int(float(value))


def flag(value: Any) -> bool:
  """True or False, also as text."""
  names = {'true': True, 'false': False}
  if isinstance(value, str) and value.lower() in names:
    return names[value.lower()]
  if not isinstance(value, bool):
    raise ValueError('true or false')
  return value


def text(value: Any) -> str:
  """Text; a bare `off` or `no` has been read as False by YAML."""
  if isinstance(value, bool):
    return 'on' if value else 'off'
  return str(value)


def pair(value: Any) -> tuple[float, ...]:
  """One or two numbers, as a list or '0.2 0.28'."""
  if isinstance(value, str):
    value = value.replace(',', ' ').split()
  values = value if isinstance(value, (list, tuple)) else [value]
  if len(values) not in (1, 2):
    raise ValueError('one or two numbers')
  return tuple(map(number, values))


def interval(value: Any) -> tuple[float, float]:
  """A number, or two as '0.5_5'; the lower end is 0 if there is one alone."""
  low, _, high = str(value).rpartition('_')
  return float(low or 0), float(high)


def anything(value: Any) -> Any:
  """As it stands."""
  return value


def _flatten(tree, prefix=''):
  flat = {}
  for key, value in tree.items():
    key = f'{prefix}{key}'.lstrip('-')
    if isinstance(value, dict) and value:
      flat.update(_flatten(value, f'{key}.'))
    else:
      flat[key] = value
  return flat


def _resolve(value, flat, depth=0):
  """(value, whether it is one): follows Hydra's references in the file."""
  match = isinstance(value, str) and re.fullmatch(
      r'\$\{(oc\.select:\s*)?([\w.]+)(?:,\s*([^${}]*))?\}', value)
  if not match:
    return value, not (isinstance(value, str) and '${' in value)
  _, name, default = match.groups()
  if name in flat and depth < 9:
    return _resolve(flat[name], flat, depth + 1)
  if default is None:
    return None, False
  return yaml.safe_load(default), True


def _convert(key, value, option):
  if value is None and (option.default is None or option.nullable):
    return None
  try:
    if value is None:
      raise ValueError('a value')
    return option.kind(value)
  except (TypeError, ValueError) as error:
    kind = (option.kind.__doc__ or '').split(';')[0].split('.')[0].lower()
    raise ValueError(f'{key} should be {kind}, got {value!r}.') from error


def _covering(key, known):
  """The name in `known` that is this key, or a section that it is in."""
  parts = key.split('.')
  heads = ('.'.join(parts[:i]) for i in range(1, len(parts) + 1))
  return next((head for head in heads if head in known), '')


def _close(key, names):
  """The name most like a key, or with an equal or similar last part."""
  close = difflib.get_close_matches(key, names, n=1, cutoff=0.8)
  if close:
    return close[0]
  by_last = {name.rpartition('.')[2]: name for name in reversed(names)}
  last = difflib.get_close_matches(
      key.rpartition('.')[2], list(by_last), n=1, cutoff=0.75)
  return by_last[last[0]] if last else ''
