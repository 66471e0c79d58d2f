"""Descriptions of rules as text for a terminal and as the reference's pages."""
import dataclasses
from typing import Mapping

from rlclip.analysis import rules
from rlclip.analysis.rule_sections import Section, sections, wrap
from rlclip.losses import LossSpec

COMMAND = 'python -m experiments.explain'
_PLACE = 'docs/reference'


def text(rule: rules.Rule, others: tuple[tuple[str, str], ...] = ()) -> str:
  """One rule, for a terminal.

  Args:
    rule: what is explained.
    others: (kind, name) of what else has the name that was asked for.

  Returns:
    Lines of at most 96 columns.
  """
  lines = [_title(rule), '=' * len(_title(rule)), '']
  for section in sections(rule):
    if section.title:
      lines += ['', section.title, '-' * len(section.title)]
    lines += section.lines
  if others:
    lines += ['', *wrap('The name also stands for: ' + ', '.join(
        f'{kind}:{name}' for kind, name in others) + '.')]
  return '\n'.join(lines) + '\n'


def listing() -> str:
  """All names by kind, for a terminal."""
  lines = [f'{COMMAND} NAME, where NAME is one of', '']
  for kind, entry in rules.KINDS.items():
    lines += [f'{entry.title} ({kind}:NAME where another kind has it too)'
              if kind == 'algorithm' else entry.title]
    lines += [*wrap(', '.join(entry.names()), '  '), '']
  return '\n'.join(lines)


def pages() -> dict[str, str]:
  """File name to contents of the whole reference."""
  found = {kind: [rules.describe(*key) for key in rules.names(kind)]
           for kind in rules.KINDS}
  return {'README.md': _index(found), **{
      f'{_stem(kind)}.md': _page(kind, found[kind]) for kind in found}}


def _title(rule):
  also = f', also {", ".join(rule.aliases)}' if rule.aliases else ''
  return f'{rule.name} ({rule.kind}{also})'


def _stem(kind):
  return rules.KINDS[kind].title.lower().replace(' ', '_')


def _generated():
  return (f'Generated from the docstrings and the code by `{COMMAND} '
          f'--write_docs={_PLACE}`; not to be edited.\n')


def _index(found: Mapping[str, list[rules.Rule]]) -> str:
  rows = [[f'[{rules.KINDS[kind].title}]({_stem(kind)}.md)',
           ', '.join(f'[{r.name}]({_stem(kind)}.md#{r.name})' for r in entries)]
          for kind, entries in found.items()]
  return '\n'.join([
      '# Reference', '', _generated(),
      'Every name in the space of rules, by axis; an algorithm is a point on '
      'all of them.', '', *_table(['kind', 'names'], rows), '',
      '## Algorithms, and their point on each axis', '',
      *_points(found['algorithm']), ''])


def _points(entries):
  """The table of algorithms by axis."""
  axes = [field.name for field in dataclasses.fields(LossSpec)]
  rows = [[f'[{rule.name}](algorithms.md#{rule.name})',
           *(_brief(getattr(rule.spec, axis)) for axis in axes)]
          for rule in entries]
  return _table(['name', *axes], rows)


def _brief(value):
  return '' if value is None else rules.label(value)


def _page(kind: str, entries: list[rules.Rule]) -> str:
  lines = [f'# {rules.KINDS[kind].title}', '', _generated()]
  if kind == 'algorithm':
    lines += _points(entries)
  else:
    lines += _table(['name', 'what it is'], [
        [f'[{rule.name}](#{rule.name})', rule.doc.summary]
        for rule in entries])
  for rule in entries:
    lines += ['', f'## {rule.name}', '']
    if rule.aliases:
      lines += [f'Also {", ".join(f"`{alias}`" for alias in rule.aliases)}.',
                '']
    for section in sections(rule):
      # One page of tables an algorithm is for the command line.
      if kind != 'algorithm' or not section.is_long:
        lines += _markdown(section)
  return '\n'.join(lines).rstrip() + '\n'


def _markdown(section: Section) -> list[str]:
  head = [f'**{section.title}**', ''] if section.title else []
  if not section.is_table:
    return [*head, ' '.join(section.lines), '']
  return [*head, '```text', *section.lines, '```', '']


def _table(head, rows):
  line = lambda cells: '| ' + ' | '.join(
      cell.replace('|', r'\|') for cell in cells) + ' |'
  return [line(head), line(['---'] * len(head)), *map(line, rows)]
