"""Tokenizers: characters, chat templates applied once, stop ids."""
import contextlib
import json

import numpy as np
import pytest
import tokenizers
import transformers

from rlclip import rollouts
from rlclip.data import tasks, tokenizer
from rlclip.rewards import pool
from rlclip.sampler import scripted
from rlclip.types import SamplingSpec

# Writes bos itself, as Llama's does, and a date.
_TEMPLATE = (
    '{{ bos_token }}{{ date_string }}|{% for m in messages %}'
    '{{ m.role }}:{{ m.content }}{{ eos_token }}{% endfor %}'
    '{% if add_generation_prompt %}assistant:{% endif %}'
    '{% if quiet %}.{% endif %}')


@pytest.fixture
def characters():
  return tokenizer.character_tokenizer('0123456789+= #')


@pytest.fixture
def chat_folder(tmp_path):
  """A saved tokenizer that adds <s> in front of any text it is given."""
  tokens = ['<s>', '</s>', '<end>', *map(chr, range(32, 127))]
  base = tokenizers.Tokenizer(tokenizers.models.WordLevel(
      {token: i for i, token in enumerate(tokens)}))
  base.pre_tokenizer = tokenizers.pre_tokenizers.Split(
      tokenizers.Regex('.'), 'isolated')
  base.decoder = tokenizers.decoders.Fuse()
  base.post_processor = tokenizers.processors.TemplateProcessing(
      single='<s> $A', special_tokens=[('<s>', 0)])
  inner = transformers.PreTrainedTokenizerFast(
      tokenizer_object=base, bos_token='<s>', eos_token='</s>',
      additional_special_tokens=['<end>'])
  inner.chat_template = _TEMPLATE
  inner.save_pretrained(tmp_path)
  return tmp_path


def test_one_token_a_character(characters):
  ids = characters.encode('12+3= #')
  assert ids.dtype == np.int32
  assert ids.tolist() == [3, 4, 12, 5, 13, 14, 15]
  assert characters.decode([*ids, 1]) == '12+3= #'
  assert characters.decode([3, 1], keep_special=True) == '1<eos>'
  assert (characters.vocab_size, characters.stop_ids) == (16, (1,))
  assert characters.encode_prompt('1+2').tolist() == [3, 12, 4]


def test_characters_survive_the_disk(characters, tmp_path):
  characters.save(tmp_path)
  loaded = tokenizer.load(tmp_path)
  assert loaded.stop_ids == (1,)
  assert loaded.decode(loaded.encode('1 + 2')) == '1 + 2'


def test_a_character_outside_the_alphabet_is_refused(characters):
  with pytest.raises(ValueError, match='1x2'):
    characters.encode('1x2')
  with pytest.raises(ValueError, match='distinct'):
    tokenizer.character_tokenizer('aa')


def test_messages_need_a_chat_template(characters):
  with pytest.raises(ValueError, match='chat template'):
    characters.encode_prompt([{'role': 'user', 'content': '1'}])


def test_the_template_is_applied_once_with_one_bos(chat_folder):
  loaded = tokenizer.load(chat_folder)
  messages = [{'role': 'user', 'content': 'hi'}]
  ids = loaded.encode_prompt(messages)
  assert loaded.decode(ids, keep_special=True) == (
      '<s>26 Jul 2024|user:hi</s>assistant:')
  assert ids.tolist().count(0) == 1
  assert loaded.encode_prompt('hi').tolist() == [0, *loaded.encode('hi')]
  assert loaded.decode(
      loaded.encode_prompt(messages, quiet=True)).endswith('assistant:.')


def test_stop_ids_join_tokenizer_and_generation_config(chat_folder):
  assert tokenizer.load(chat_folder).stop_ids == (1,)
  (chat_folder / 'config.json').write_text(
      json.dumps({'model_type': 'llama', 'eos_token_id': 5}))
  assert tokenizer.load(chat_folder).stop_ids == (1, 5)
  (chat_folder / 'generation_config.json').write_text(
      json.dumps({'eos_token_id': [2, 1]}))
  assert tokenizer.load(chat_folder).stop_ids == (1, 2)


def test_a_missing_tokenizer_is_named(tmp_path, monkeypatch):
  monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', True)
  with pytest.raises(ValueError, match='no/such-model'):
    tokenizer.load('no/such-model')
  with pytest.raises(ValueError, match='tokenizer.json'):
    tokenizer.load(tmp_path)


def test_a_prompt_begins_with_one_bos_whoever_writes_it(chat_folder):
  loaded = tokenizer.load(chat_folder)
  prompts = ['hi', '<s>hi', [{'role': 'user', 'content': 'hi'}]]
  encoded = loaded.encode_prompts(prompts)
  for prompt, ids in zip(prompts, encoded):
    assert ids.tolist().count(0) == 1 and ids[0] == 0
    np.testing.assert_array_equal(ids, loaded.encode_prompt(prompt))
  np.testing.assert_array_equal(encoded[0], encoded[1])
  loaded.inner.chat_template = '{{ bos_token }}' + _TEMPLATE
  with pytest.raises(ValueError, match='one <s> in front, got .<s><s>26 Jul'):
    loaded.encode_prompts(prompts)


def test_sampler_and_learner_get_the_same_ids_of_a_chat(chat_folder):
  loaded = tokenizer.load(chat_folder)
  task = tasks.get('arithmetic_words', system='Be brief.')
  prompts = rollouts.encode(task, loaded, 'train', range(3), limit=256)
  seen = []

  def answer(request):
    seen.append(request.prompt)
    return [*loaded.encode('7'), *loaded.stop_ids]

  sampler = scripted.Scripted(answer, log_prob=-0.5)
  sampler.load_weights({}, version=0)
  with pool.Pool({'arithmetic': 1.0}, num_workers=1) as workers:
    collected = rollouts.collect(
        sampler, workers, loaded.decode, prompts,
        SamplingSpec(4, loaded.stop_ids), group_size=2, first_id=0,
        phase=lambda name: contextlib.nullcontext())
  batch = rollouts.batch(
      collected, advantage='group_mean', prompt_length=256,
      completion_length=4, drop_truncated=False)
  for row, length, prompt in zip(
      batch.prompts, batch.prompt_lengths, prompts, strict=True):
    learned, sampled = row[:length], seen.pop(0)
    np.testing.assert_array_equal(learned, sampled)
    np.testing.assert_array_equal(learned, seen.pop(0))
    np.testing.assert_array_equal(learned, loaded.encode_prompt(
        task.messages(prompt.fields)))
    assert learned.tolist().count(0) == 1 and learned[0] == 0
    assert loaded.decode(learned, keep_special=True).count('assistant:') == 1
