"""What a certificate is, and the list of all."""
import fnmatch
import importlib.util
import inspect
from typing import Any, Callable, NamedTuple

from rlclip import registry
from rlclip.oracle import examples

# The modules of this package file their certificates on the first look-up.
REGISTRY = registry.Registry(
    'certificate', package='rlclip.oracle.certificates')

# Of absolute deviations, in float64.
TOLERANCE = 1e-12


class Certificate(NamedTuple):
  """A named identity, with what it speaks of.

  `error` takes a seed and returns a deviation; with `subjects` it takes some
  of them as well, and returns the deviation of each.
  """
  error: Callable[..., Any]
  covers: tuple[str, ...]  # keys of `examples`, with * and ?
  subjects: Callable[[], tuple[str, ...]] | None
  requires: str | None  # a package that rlclip does not come with


def register(name: str, *, covers: tuple[str, ...] = (),
             subjects: Callable[[], tuple[str, ...]] | None = None,
             requires: str | None = None):
  """Decorator that files a function under a name.

  Args:
    name: of the certificate.
    covers: what it speaks of, as 'gate:pessimistic_min' or 'algorithm:*'.
    subjects: gives the keys that the identity is checked for one by one; it
      speaks of them all.
    requires: a package that the check imports.

  Returns:
    The decorator; the function stays as it is.
  """
  def add(function):
    REGISTRY.register(name)(Certificate(function, covers, subjects, requires))
    return function
  return add


def names() -> tuple[str, ...]:
  """All certificates, sorted."""
  return REGISTRY.names()


def is_available(name: str) -> bool:
  """Whether the package that the check imports, if any, is there."""
  package = REGISTRY[name].requires
  return package is None or importlib.util.find_spec(package) is not None


def check(name: str, seed: int = 0, subject: str | None = None) -> float:
  """The error of a certificate; at most TOLERANCE where it holds.

  Args:
    name: of the certificate.
    seed: of the policies and numbers that it draws.
    subject: one of those that it is checked for one by one, as
      'algorithm:grpo'; None takes the largest error of all.

  Returns:
    The largest absolute deviation.

  Raises:
    ValueError: for an unknown name or subject, or a missing package.
  """
  errors = check_each(name, seed) if subject is None else check_each(
      name, seed, (subject,))
  return max(errors.values())


def check_each(name: str, seed: int = 0,
               subjects: tuple[str, ...] | None = None) -> dict[str, float]:
  """The errors of a certificate for all its subjects, or for some.

  Args:
    name: of the certificate.
    seed: of the policies and numbers that it draws.
    subjects: keys of `examples`; None takes all that there are.

  Returns:
    Deviations by subject; a certificate without subjects has one, its name.

  Raises:
    ValueError: as in `check`.
  """
  certificate = REGISTRY[name]
  if not is_available(name):
    raise ValueError(
        f'Certificate {name!r} needs the package {certificate.requires}, which '
        f'is not installed. Install the extra rlclip[test].')
  known = () if certificate.subjects is None else certificate.subjects()
  unknown = sorted(set(subjects or ()) - set(known))
  if unknown:
    raise ValueError(
        f'Certificate {name!r} is not checked for {", ".join(unknown)}; it is '
        f'for {", ".join(known) or "nothing in particular"}.')
  if certificate.subjects is None:
    return {name: certificate.error(seed)}
  return certificate.error(seed, subjects or known)


def documentation(name: str) -> str:
  """What a certificate says."""
  return inspect.getdoc(REGISTRY[name].error) or ''


def covering(kind: str, name: str) -> tuple[str, ...]:
  """The certificates that speak of a rule or of one value of an axis.

  Args:
    kind: one of examples.kinds(), as 'algorithm' or 'gate'.
    name: a name or alias, with numbers or without.

  Returns:
    Their names, sorted.

  Raises:
    ValueError: for an unknown kind or name.
  """
  key = examples.key(kind, name)
  return tuple(n for n in names() if _speaks_of(REGISTRY[n], key))


def _speaks_of(certificate: Certificate, key: str) -> bool:
  if any(fnmatch.fnmatchcase(key, pattern) for pattern in certificate.covers):
    return True
  return certificate.subjects is not None and key in certificate.subjects()
