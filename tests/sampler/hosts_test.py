"""Several processes draw what one draws; two real ones are started."""
import os
import socket
import subprocess
import sys

import jax
import numpy as np

from rlclip import partitioning
from rlclip.models import transformer
from rlclip.sampler import hosts
from rlclip.types import Request, SamplingSpec
from tests.sampler import contract_test

_SECONDS = 240


def _requests(groups):
  spec = SamplingSpec(4, ())
  prompts = [np.full(3, i % 32, np.int32) for i in range(len(groups))]
  return [Request(10 * i + g, prompt, spec)
          for i, (prompt, size) in enumerate(zip(prompts, groups))
          for g in range(size)]


def test_a_group_stays_together_and_nothing_is_left_out():
  for groups in ([3, 1, 2, 2, 5], [1], [2, 2], []):
    requests = _requests(groups)
    for count in (1, 2, 3, 8):
      cut = hosts.shares(requests, count)
      assert len(cut) == count
      assert [i for a, b in cut for i in range(a, b)] == list(
          range(len(requests)))
      for first, last in cut:
        if 0 < first < len(requests) and first < last:
          assert not np.array_equal(
              requests[first].prompt, requests[first - 1].prompt)


def test_two_processes_draw_what_one_draws(tmp_path):
  with socket.socket() as free:
    free.bind(('localhost', 0))
    address = f'localhost:{free.getsockname()[1]}'
  env = {**os.environ, 'XLA_FLAGS': '', 'JAX_PLATFORMS': 'cpu'}
  running = [
      subprocess.Popen(
          [sys.executable, '-m', 'tests.sampler.hosts_test', address, str(i),
           str(tmp_path / f'{i}.npz')], env=env, stderr=subprocess.PIPE)
      for i in range(2)]
  try:
    errors = [p.communicate(timeout=_SECONDS)[1].decode() for p in running]
  finally:
    for process in running:
      process.kill()
  assert [p.returncode for p in running] == [0, 0], errors
  sampler, params = contract_test.make_engine()
  sampler.load_weights(params, version=7)
  expected = sampler.generate(contract_test.requests_of())
  for i in range(2):
    with np.load(tmp_path / f'{i}.npz') as got:
      for j, completion in enumerate(expected):
        np.testing.assert_array_equal(got[f'tokens{j}'], completion.tokens)
        np.testing.assert_allclose(
            got[f'logps{j}'], completion.logps, rtol=0, atol=1e-5)
      assert list(got['finish']) == [c.finish for c in expected]
      assert set(got['version']) == {7}
      # Another process asked for something else.
      assert 'number of requests is' in str(got['error'])


def _process(address, index, path):
  """One of two processes, with weights laid over both."""
  jax.distributed.initialize(address, num_processes=2, process_id=int(index))
  own, params = contract_test.make_engine()
  model = transformer.make(contract_test.CONFIG)
  mesh = partitioning.make(fsdp=2)
  laid = jax.jit(
      model.init, out_shardings=mesh.tree_shardings(model.axes, params))(
          jax.random.key(0))
  assert not laid['embedding'].is_fully_addressable
  here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  sampler = hosts.Hosts(own, jax.tree.map(lambda _: here, params))
  sampler.load_weights(laid, version=7)
  requests = contract_test.requests_of()
  completions = sampler.generate(requests)
  try:
    sampler.generate(requests[int(index):])
    error = None
  except ValueError as caught:
    error = str(caught)
  np.savez(
      path, error=error, finish=[c.finish for c in completions],
      version=[c.version for c in completions],
      **{f'tokens{i}': c.tokens for i, c in enumerate(completions)},
      **{f'logps{i}': c.logps for i, c in enumerate(completions)})
  jax.distributed.shutdown()


if __name__ == '__main__':
  _process(*sys.argv[1:])
