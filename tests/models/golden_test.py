"""Our logits equal transformers' on stored checkpoints of every family."""
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlclip.models import huggingface, transformer

GOLDEN = os.path.join(os.path.dirname(__file__), 'golden')
FAMILIES = ('llama', 'llama3', 'qwen2_tied', 'qwen2_untied', 'qwen3')


@pytest.mark.parametrize('name', FAMILIES)
def test_logits_equal_those_of_transformers(name):
  folder = os.path.join(GOLDEN, name)
  config, params = huggingface.load(folder)
  golden = np.load(os.path.join(folder, 'golden.npz'))
  model = transformer.make(config)
  tokens = jnp.asarray(golden['tokens'])
  positions = jnp.arange(tokens.shape[1])[None]

  @jax.jit
  def logits(params):
    return model.unembed(params, model.apply(params, tokens, positions)[0])

  got = np.asarray(logits(params))
  np.testing.assert_allclose(got, golden['logits'], rtol=0, atol=1e-4)
  # Logits that all but vanish would pass whatever was computed.
  assert np.std(golden['logits']) > 0.5
