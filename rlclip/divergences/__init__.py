"""f-divergences as functions of the log-ratio; one function a divergence.

A divergence is D(new || old) = E_old[f(w)], w = new / old. To add one, write a
function that returns a `Divergence`, decorate it with `@register('name')`, and
put it into a file of this package: it is found, tested, explained and usable
as a clip rule and as a penalty without another edit.
"""
from rlclip.divergences.divergence import (aliases, canonical, Divergence,
                                           documentation, get, names, register,
                                           REGISTRY)

__all__ = ('Divergence', 'REGISTRY', 'aliases', 'canonical', 'documentation',
           'get', 'names', 'register')
