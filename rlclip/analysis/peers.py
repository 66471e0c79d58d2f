"""What other libraries call our rules, and where a name means something else.
"""
from typing import NamedTuple


class PeerName(NamedTuple):
  library: str
  name: str
  note: str  # where the same name means something else there


def names_elsewhere(kind: str, name: str) -> tuple[PeerName, ...]:
  """Names of a rule in other libraries."""
  del kind, name
  return ()
