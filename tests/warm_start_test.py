"""Supervised learning on prompts and completions of any task."""
import json
import re

import jax
import numpy as np
import pytest

from configs import sft_gsm8k, tiny
from rlclip import assembly, checkpoint, config, metrics, train, warm_start
from rlclip.data import order, tokenizer
from rlclip.models import config as model_config
from rlclip.models import huggingface, transformer

ALPHABET = '0123456789+=#'
ROWS = [{'q': f'{a}+{b}=', 'target': str(a + b), 'text': f'#{a + b}'}
        for a in range(6) for b in range(6)]


@pytest.fixture(scope='module')
def model(tmp_path_factory):
  """A saved model of random weights, with a token a character."""
  folder = tmp_path_factory.mktemp('saved') / 'model'
  characters = tokenizer.character_tokenizer(ALPHABET)
  architecture = model_config.ModelConfig(
      family='llama', vocab_size=characters.vocab_size, hidden_size=32,
      num_layers=1, num_heads=2, num_kv_heads=1, head_dim=16,
      intermediate_size=64, max_positions=16, qkv_bias=False, qk_norm=False)
  init = jax.jit(transformer.make(architecture).init)
  huggingface.save(
      str(folder), architecture, init(jax.random.key(0)), dtype='float32')
  characters.save(folder)
  return str(folder)


@pytest.fixture
def experiment(tmp_path, model):
  """A run of supervised learning alone, on 36 pairs, from a saved model."""
  (tmp_path / 'pairs.jsonl').write_text('\n'.join(map(json.dumps, ROWS)))
  c = sft_gsm8k.get_config()
  c.model.path = model
  c.task.name, c.task.data_dir = 'table', str(tmp_path)
  c.task.options = options = {
      'files': {'train': 'pairs.jsonl', 'test': 'pairs.jsonl'},
      'columns': {'problem': 'q', 'answer': 'target'}, 'completion': 'text',
      'reward': 'arithmetic', 'chat': False, 'template': '{problem}',
      'cache_dir': str(tmp_path / 'cache')}
  c.warm_start.task, c.warm_start.options = 'table', options
  c.warm_start.num_steps, c.warm_start.batch_size = 50, 40
  c.warm_start.learning_rate = 1e-2
  c.rollout.prompt_length = c.rollout.completion_length = 8
  c.evaluation.num_samples, c.rollout.num_prompts = 1, 8
  return c


def test_pairs_are_learned_from_a_pretrained_model(experiment, tmp_path):
  before = huggingface.load(experiment.model.path)[1]
  train.train(config.resolve(experiment), tmp_path / 'run')
  lines = metrics.read(tmp_path / 'run' / 'metrics.jsonl')
  assert [line['step'] for line in lines] == [0]
  log = (tmp_path / 'run' / 'log.txt').read_text()
  # Trained and tested on the same rows, as the log says.
  assert 'table/train: 36 rows' in log and '36 overlaps with 36 of' in log
  # Random weights have ln 15 = 2.7; a model that only knows what completions
  # look like has more than 1: # and <eos> for nothing, 2.2 for the digits.
  assert float(re.findall(r'50/50  loss ([0-9.]+)', log)[0]) < 1
  parts = assembly.build(config.resolve(experiment))
  keeper = checkpoint.Checkpointer(
      tmp_path / 'run' / 'checkpoints', read_only=True)
  _, after, _ = keeper.restore_params(
      assembly.abstract_state(parts).params, None)
  keeper.close()
  moved = jax.tree.map(
      lambda a, b: np.any(np.asarray(a) != np.asarray(b)), before, after)
  assert all(jax.tree.leaves(moved))


def test_prompts_are_masked_and_completions_end(experiment):
  experiment.warm_start.batch_size = 5
  experiment.rollout.completion_length = 3
  parts = assembly.build(config.resolve(experiment))
  task = assembly.warm_start_task(parts)
  batch = warm_start.demonstrations(parts, task, 2)
  indices = order.indices_at(10, 5, 36, seed=0)
  for row, index in enumerate(indices):
    prompt, text = ROWS[index]['q'], ROWS[index]['text']
    length = batch.prompt_lengths[row]
    np.testing.assert_array_equal(
        batch.prompts[row, :length], parts.tokenizer.encode(prompt))
    wanted = [*parts.tokenizer.encode(text), 1][:3]  # <eos>, unless cut
    np.testing.assert_array_equal(
        batch.completions[row][batch.mask[row]], wanted)


def test_a_task_without_completions_cannot_be_learned_from(experiment):
  experiment.warm_start.task = 'arithmetic_words'
  experiment.warm_start.options = {}
  parts = assembly.Parts(config.resolve(experiment), *[None] * 7)
  with pytest.raises(ValueError, match="'arithmetic_words' has no demonstra"):
    assembly.warm_start_task(parts)


def test_the_run_s_own_task_is_learned_from_its_other_end():
  experiment = config.resolve(tiny.get_config())
  parts = assembly.build(experiment)
  batch = warm_start.demonstrations(parts, assembly.warm_start_task(parts), 1)
  examples = parts.task.examples('train')
  for row in (0, 31):
    text = parts.tokenizer.decode(
        batch.prompts[row, :batch.prompt_lengths[row]])
    assert text == examples[-1 - 32 - row]['problem']


def test_a_task_without_tests_is_evaluated_on_others(experiment):
  experiment.task.options.files = {'train': 'pairs.jsonl'}
  resolved = config.resolve(experiment)
  parts = assembly.Parts(resolved, assembly.get_task(
      resolved, 'table', resolved.task.options), *[None] * 6)
  with pytest.raises(ValueError, match=r"\['train'\] and no config.evaluation"):
    assembly.evaluation_tasks(parts)
  experiment.evaluation.tasks = ('arithmetic',)
  parts = parts._replace(experiment=config.resolve(experiment))
  assert list(assembly.evaluation_tasks(parts)) == ['arithmetic']
