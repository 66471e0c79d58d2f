"""The nearest point, and what it does not hold, as text."""
import dataclasses
import textwrap

from rlclip import algorithms
from rlclip.losses import LossSpec
from rlclip.translate.libraries import translate, Translation

_WIDTH = 80


def main_text(library: str, path: str) -> str:
  """What `experiments.explain --from=library path` prints.

  Args:
    library: one of rlclip.translate.LIBRARIES.
    path: a YAML or JSON file of that library's config.

  Returns:
    Lines of text: the point, settings, warnings, and the keys that were not
    looked at or that nobody knows.

  Raises:
    ValueError: as `translate`.
  """
  done = translate(library, path)
  lines = [*_wrap(f'{path}, read as {done.version}; what it omits has the '
                  f'defaults of that version.'), '', 'Nearest point:']
  lines += [f'  {field.name:<13} {getattr(done.point.spec, field.name)}'
            for field in dataclasses.fields(done.point.spec)]
  lines += ['', *_wrap(_like(done.point.spec)), '', 'Data and learner:']
  lines += [f'  {s.name} = {s.value}  ({_said(done, s.option)})'
            for s in done.point.settings]
  lines += ['', 'Warnings:' if done.point.notes else 'Warnings: none.']
  for option, text in done.point.notes:
    lines += _wrap(f'{_said(done, option)}: {text}.' if option else f'{text}.',
                   '- ')
  lines += _keys(done)
  return '\n'.join(lines) + '\n'


def _like(spec: LossSpec) -> str:
  """The algorithm that is most like it, and the axes where they differ."""
  differ = {name: _differences(spec, algorithms.get(name))
            for name in algorithms.names()}
  name = min(differ, key=lambda n: sum(differ[n].values()))
  if not differ[name]:
    return f'This is the algorithm {name}.'
  return (f'The algorithm {name} differs from it in '
          f'{", ".join(differ[name])}.')


def _differences(spec: LossSpec, other: LossSpec) -> dict[str, int]:
  """Axes that differ: 1 where only numbers do, 2 where the kind does."""
  differ = {}
  for field in dataclasses.fields(spec):
    ours, theirs = getattr(spec, field.name), getattr(other, field.name)
    if ours != theirs:
      kinds = [x.partition('(')[0] if isinstance(x, str) else type(x)
               for x in (ours, theirs)]
      differ[field.name] = 1 if kinds[0] == kinds[1] else 2
  return differ


def _said(done: Translation, option: str) -> str:
  """'beta = 0.04', with '(default)' where the file does not say so."""
  default = '' if option in done.reading.given else ', default'
  return f'{option} = {done.reading.values[option]}{default}'


def _keys(done: Translation) -> list[str]:
  unseen = (f'{name} ({count} keys)' if count > 1 else name
            for name, count in done.reading.unseen.items())
  lines = []
  for title, names in (
      ('Not looked at', tuple(unseen)),
      ('Refers to something outside of the file, the default is taken',
       done.reading.unresolved)):
    if names:
      lines += ['', f'{title}:', *_wrap(', '.join(names), '  ')]
  if done.reading.unknown:
    lines += ['', f'Unknown to {done.version}:']
  for name, close in done.reading.unknown:
    hint = f'  Did you mean {close}?' if close else ''
    lines.append(f'  {name}{hint}')
  return lines


def _wrap(text: str, mark: str = '') -> list[str]:
  return textwrap.wrap(
      text, _WIDTH, initial_indent=mark, subsequent_indent=' ' * len(mark),
      break_long_words=False, break_on_hyphens=False)
