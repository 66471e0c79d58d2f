"""Says what a divergence, an algorithm, a gate or a way to draw bounds does.

python -m experiments.explain atr_grpo     or: 'alpha(order=0.25)'
"""
import dataclasses
import inspect

from absl import app
import jax
import jax.numpy as jnp
import numpy as np

from rlclip import algorithms, divergences, losses, registry
from rlclip.trust_region import bounds, gates

RATIOS = (.02, .5, .7, .79, .81, .9, .999, 1, 1.001, 1.1, 1.19, 1.21, 1.3, 2, 9)
ANCHOR = -4.0  # log-prob of the token under sampler and reference


def find(name):
  """(kind, documentation, spec that shows it) of anything with this name."""
  base = registry.parse(name)[0]
  if base in algorithms.REGISTRY:
    text = f'{algorithms.documentation(base)}\nTrust: {algorithms.trust(base)}'
    return 'algorithm', text, algorithms.get(base)
  if base in divergences.REGISTRY:
    return 'divergence', divergences.documentation(base), (
        losses.LossSpec(bounds=bounds.FromDivergence(name)))
  if base in gates.REGISTRY:
    gate = gates.REGISTRY[base]()
    return 'gate', inspect.getdoc(type(gate)), losses.LossSpec(
        gate=gate, bounds=bounds.Fixed() if gate.uses_bounds else None)
  if base in bounds.REGISTRY:
    rule = bounds.REGISTRY[base]()
    return 'bounds', inspect.getdoc(type(rule)), losses.LossSpec(
        bounds=rule, gate=gates.Unconditional())
  raise app.UsageError(f'Unknown name {name!r}. Known: ' + ', '.join([
      *algorithms.names(), *divergences.names(), *gates.REGISTRY,
      *bounds.REGISTRY]))


def gradient_map(spec):
  """Losses and gradients by log p, [ratios, (A = +1, A = -1)] each."""
  log_ratio = jnp.log(jnp.repeat(jnp.array(RATIOS), 2))[:, None]
  anchor, size = jnp.full_like(log_ratio, ANCHOR), len(log_ratio)
  # Each pair is a group of two: A = +1 its only success, A = -1 its failure.
  success = jnp.arange(size) % 2 == 0
  call = lambda logps, mask: losses.from_arrays(
      spec, logps=logps, behavior_logps=anchor, old_logps=anchor, mask=mask,
      reference_logps=anchor, advantages=jnp.where(success, 1.0, -1.0),
      rewards=jnp.where(success, 1.0, 0.0),
      group=jnp.arange(size) // 2).loss.total
  logps, single = anchor + log_ratio, jnp.eye(size, dtype=bool)[..., None]
  values = jax.vmap(call, (None, 0))(logps, single)
  slopes = jax.grad(call)(logps, jnp.ones_like(anchor, bool))
  return np.reshape(values, (-1, 2)), np.reshape(slopes, (-1, 2)) + 0.0


def main(argv):
  if len(argv) != 2:
    raise app.UsageError('Give one name: an algorithm, divergence, gate, ...')
  kind, text, spec = find(argv[1])
  print(f'{argv[1]} ({kind})\n\n{text}\n\nOn each axis:')
  for field in dataclasses.fields(spec):
    print(f'  {field.name:<10} {getattr(spec, field.name)}')
  if spec.bounds is not None:
    print('  interval   [{:.6g}, {:.6g}]'.format(*spec.bounds.interval()))
  for delta in (.001, .02, .1, .5, 2) if kind == 'divergence' else ():
    low, high = divergences.get(argv[1]).interval(delta)
    print(f'  f(w) <= {delta:<6g} [{low:.6f}, {high:.6f}]')
  print(f'\nA token of log-prob {ANCHOR:g} at the sampler: loss, and gradient '
        f'by log p\n{"w":>7}' + '{:>12} {:>9} {:>12} {:>9}'.format(
            'loss, A=+1', 'gradient', 'loss, A=-1', 'gradient'))
  for w, value, slope in zip(RATIOS, *gradient_map(spec)):
    print(f'{w:7.3f}{value[0]:12.4f} {slope[0]:9.4f} '
          f'{value[1]:12.4f} {slope[1]:9.4f}')


if __name__ == '__main__':
  app.run(main)
