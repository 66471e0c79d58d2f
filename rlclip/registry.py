"""Names to things, with errors that help; what is selectable is a Registry."""
import difflib
import importlib
import pkgutil
from typing import Callable, Generic, Iterator, TypeVar

T = TypeVar('T')


class Registry(Generic[T]):
  """A table from names to functions or specs.

  Registries are filled by decorators; where a package is given, its modules
  are imported on the first look-up, so that a new file is found by itself.
  """

  def __init__(self, kind: str, package: str | None = None):
    self._kind = kind
    self._package = package
    self._entries: dict[str, T] = {}
    self._aliases: dict[str, str] = {}

  def register(self, name: str, *aliases: str) -> Callable[[T], T]:
    """Decorator that files its function under `name` (and `aliases`)."""
    def add(entry: T) -> T:
      for key in (name, *aliases):
        if key in self._entries or key in self._aliases:
          raise ValueError(f'{self._kind} {key!r} is registered twice.')
      self._entries[name] = entry
      self._aliases.update({alias: name for alias in aliases})
      return entry
    return add

  def names(self) -> tuple[str, ...]:
    """Registered names without aliases, sorted."""
    self._discover()
    return tuple(sorted(self._entries))

  def aliases(self, name: str) -> tuple[str, ...]:
    """Other names of `name`, sorted."""
    self._discover()
    return tuple(sorted(a for a, n in self._aliases.items() if n == name))

  def __getitem__(self, name: str) -> T:
    self._discover()
    key = self._aliases.get(name, name)
    if key not in self._entries:
      known = [*self._entries, *self._aliases]
      close = difflib.get_close_matches(name, known, n=1)
      hint = f' Did you mean {close[0]!r}?' if close else ''
      raise ValueError(
          f'Unknown {self._kind} {name!r}.{hint} Known: '
          f'{", ".join(sorted(self._entries))}.')
    return self._entries[key]

  def __contains__(self, name: str) -> bool:
    self._discover()
    return name in self._entries or name in self._aliases

  def __iter__(self) -> Iterator[str]:
    return iter(self.names())

  def _discover(self):
    if self._package is None:
      return
    package, self._package = importlib.import_module(self._package), None
    for module in pkgutil.iter_modules(package.__path__):
      importlib.import_module(f'{package.__name__}.{module.name}')


def parse(text: str) -> tuple[str, dict[str, float]]:
  """Splits 'alpha(order=0.5)' into a name and its numbers.

  A name with its hyperparameters in one string is hashable, comparable and
  fits a command line.

  Raises:
    ValueError: if the text is neither `name` nor `name(key=number, ...)`.
  """
  name, bracket, rest = text.partition('(')
  if not bracket:
    return name, {}
  hyper = {}
  pairs = rest.rstrip().removesuffix(')').split(',')
  for pair in filter(str.strip, pairs if rest.rstrip().endswith(')') else ()):
    key, _, value = pair.partition('=')
    try:
      hyper[key.strip()] = float(value)
    except ValueError:
      hyper.clear()
      break
  if not hyper:
    raise ValueError(
        f'Expected a name, or a name with numbers as in '
        f"'alpha(order=0.5)', got {text!r}.")
  return name.strip(), hyper
