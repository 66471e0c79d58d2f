"""From a library's name and a file to the nearest point."""
import difflib
from typing import Any, Collection, NamedTuple

from rlclip.translate import (known_keys, openrlhf, point, reading, trl, tunix,
                              verl)
from rlclip.translate.point import Point
from rlclip.translate.reading import Reading


class _Library(NamedTuple):
  module: Any
  known: Collection[str]


class Translation(NamedTuple):
  """The point, what was read, and the version that its meaning is from."""
  point: Point
  reading: Reading
  version: str


LIBRARIES = {
    'trl': _Library(trl, known_keys.TRL),
    'verl': _Library(verl, known_keys.VERL),
    'tunix': _Library(tunix, known_keys.TUNIX),
    'openrlhf': _Library(openrlhf, known_keys.OPENRLHF),
}


def translate(library: str, path: str) -> Translation:
  """The nearest point to a library's config.

  Args:
    library: one of LIBRARIES.
    path: a YAML or JSON file; what it omits has the library's default.

  Returns:
    The Translation.

  Raises:
    ValueError: for an unknown library, a file that cannot be read, or a value
      that the library would not take either.
  """
  if library not in LIBRARIES:
    close = difflib.get_close_matches(library.lower(), list(LIBRARIES), n=1)
    hint = f' Did you mean {close[0]!r}?' if close else ''
    raise ValueError(
        f'Unknown library {library!r}.{hint} Known: {", ".join(LIBRARIES)}.')
  module, known = LIBRARIES[library]
  flat = module.prepare(reading.load(path))
  options = module.OPTIONS
  if hasattr(module, 'defaults'):
    options = options | {
        name: options[name]._replace(default=value)
        for name, value in module.defaults(flat).items()}
  read = reading.fill(flat, options, known, module.RENAMED)
  parts = module.parts(read.values)
  return Translation(point.join(parts), read, module.VERSION)
