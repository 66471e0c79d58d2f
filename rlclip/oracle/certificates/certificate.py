"""What a certificate is, and the list of all."""
import fnmatch
import importlib.util
import inspect
from typing import Callable, NamedTuple

from rlclip import registry
from rlclip.oracle import examples

# The modules of this package file their certificates on the first look-up.
REGISTRY = registry.Registry('certificate', package='rlclip.oracle.certificates')

# Of absolute deviations, in float64.
TOLERANCE = 1e-12


class Certificate(NamedTuple):
  """A named identity, with what it speaks of.

  `error` takes a seed, and with `subjects` one of them as well.
  """
  error: Callable[..., float]
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


def subjects(name: str) -> tuple[str | None, ...]:
  """What a certificate is checked for one by one; (None,) if for itself."""
  of = REGISTRY[name].subjects
  return (None,) if of is None else of()


def is_available(name: str) -> bool:
  """Whether the package that the check imports, if any, is there."""
  package = REGISTRY[name].requires
  return package is None or importlib.util.find_spec(package) is not None


def check(name: str, seed: int = 0, subject: str | None = None) -> float:
  """The error of a certificate; at most TOLERANCE where it holds.

  Args:
    name: of the certificate.
    seed: of the policies and numbers that it draws.
    subject: one of `subjects(name)`; None takes the largest error of all.

  Returns:
    The largest absolute deviation.

  Raises:
    ValueError: for an unknown name, or a missing package.
  """
  certificate = REGISTRY[name]
  if not is_available(name):
    raise ValueError(
        f'Certificate {name!r} needs the package {certificate.requires}, which '
        f'is not installed. Install the extra rlclip[test].')
  if certificate.subjects is None:
    return certificate.error(seed)
  chosen = certificate.subjects() if subject is None else (subject,)
  return max(certificate.error(seed, each) for each in chosen)


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
