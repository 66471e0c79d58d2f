"""Sets JAX up for all tests, before any of them imports it.

Eight host devices on the CPU: a test makes meshes of any smaller size from
`jax.devices()[:n]`, and an array it does not place lies on the first device
alone.
"""
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
_flags = [flag for flag in os.environ.get('XLA_FLAGS', '').split()
          if 'xla_force_host_platform_device_count' not in flag]
os.environ['XLA_FLAGS'] = ' '.join(
    [*_flags, '--xla_force_host_platform_device_count=8'])
