"""Config strings: names out of tables of settings, one out of each."""
from typing import Any, Mapping

from configs import default

Settings = Mapping[str, Any]  # 'algorithm.name' -> value


def choose(text: str, **tables: Mapping[str, Any]) -> dict[str, str]:
  """The name that `text` takes out of each table; else the table's first.

  Args:
    text: names in any order, as 'qwen3-8b,atr_grpo'.
    **tables: by what they choose; no name stands in two.

  Raises:
    ValueError: a name that no table has, or two of one table.
  """
  chosen = {}
  for name in filter(None, text.split(',')):
    places = [key for key, table in tables.items() if name in table]
    if not places:
      raise ValueError(
          f'Unknown variant {name!r}. Known: ' + '; '.join(
              f'{key}: {", ".join(table)}' for key, table in tables.items())
          + '.')
    if places[0] in chosen:
      raise ValueError(
          f'{name!r} and {chosen[places[0]]!r} are both of the table '
          f'{places[0]!r}. Name one.')
    chosen[places[0]] = name
  return {key: chosen.get(key, next(iter(table)))
          for key, table in tables.items()}


def config(*settings: Settings):
  """The default config with settings by dotted key; later ones win."""
  made = default.get_config()
  for each in settings:
    made.update_from_flattened_dict(each)
  return made
