"""Tokenizer, chat template and stop ids of a GGUF file, as Hugging Face files.

transformers reads GGUF tokenizers only where torch is installed, and without
SmolLM's rule that digits stand alone; so the byte-level BPE is built here.
"""
import json
import os

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
import transformers

from rlclip.models import gguf

# How text is cut before merges apply, by llama.cpp's name for it. The
# patterns are those of the published tokenizer.json files.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+')
_QWEN2 = _LLAMA3.replace('{1,3}', '')
_SPLITS = {'llama-bpe': _LLAMA3, 'qwen2': _QWEN2, 'deepseek-r1-qwen': _QWEN2}

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type


def save(path: str, folder: str) -> None:
  """Writes the tokenizer of the GGUF file `path` into `folder`.

  Writes tokenizer.json, tokenizer_config.json, chat_template.jinja (where the
  file has one) and generation_config.json with the ids that end a completion.

  Raises:
    ValueError: where the file's tokenizer is of a kind that is not known.
  """
  reader = gguf.open_file(path)
  tokens = gguf.value(reader, 'tokenizer.ggml.tokens')
  ids = {name: gguf.value(reader, f'tokenizer.ggml.{key}_token_id', None)
         for name, key in (('bos', 'bos'), ('eos', 'eos'), ('pad', 'padding'),
                           ('unk', 'unknown'), ('eot', 'eot'), ('eom', 'eom'))}
  named = {f'{name}_token': tokens[ids[name]]
           for name in ('bos', 'eos', 'pad', 'unk') if ids[name] is not None}
  tokenizer = transformers.PreTrainedTokenizerFast(
      tokenizer_object=_build(reader, tokens, ids['bos']),
      chat_template=gguf.value(reader, 'tokenizer.chat_template', None),
      model_max_length=gguf.read_config(reader).max_positions,
      clean_up_tokenization_spaces=False, **named)
  tokenizer.save_pretrained(folder)
  ends = dict.fromkeys(
      ids[name] for name in ('eos', 'eot', 'eom') if ids[name] is not None)
  generation = {
      'bos_token_id': ids['bos'],
      'eos_token_id': list(ends) if len(ends) != 1 else next(iter(ends)),
      'pad_token_id': ids['pad']}
  with open(os.path.join(folder, 'generation_config.json'), 'w') as f:
    json.dump({key: value for key, value in generation.items()
               if value not in (None, [])}, f, indent=2)


def _build(reader, tokens, bos) -> tokenizers.Tokenizer:
  kind = gguf.value(reader, 'tokenizer.ggml.model')
  if kind != 'gpt2':
    raise ValueError(
        f"The GGUF tokenizer is of kind {kind!r}; only byte-level BPE ('gpt2')"
        f' is known. Put the model\'s own tokenizer.json into the folder.')
  split = gguf.value(reader, 'tokenizer.ggml.pre')
  tokenizer = tokenizers.Tokenizer(models.BPE(
      vocab={token: i for i, token in enumerate(tokens)},
      merges=[tuple(merge.split(' '))
              for merge in gguf.value(reader, 'tokenizer.ggml.merges')],
      # Llama 3's tokens are whole words first, whatever the merges say.
      ignore_merges=split == 'llama-bpe'))
  tokenizer.pre_tokenizer = _pre_tokenizer(split)
  if split in ('qwen2', 'deepseek-r1-qwen'):
    tokenizer.normalizer = normalizers.NFC()
  tokenizer.decoder = decoders.ByteLevel()
  kinds = gguf.value(reader, 'tokenizer.ggml.token_type')
  tokenizer.add_tokens([
      tokenizers.AddedToken(token, special=kind == _CONTROL, normalized=False)
      for token, kind in zip(tokens, kinds, strict=True)
      if kind in (_CONTROL, _USER_DEFINED)])
  # llama.cpp adds the bos to Llama 3's texts where the file is silent.
  if gguf.value(reader, 'tokenizer.ggml.add_bos_token', split == 'llama-bpe'):
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f'{tokens[bos]} $A', pair=f'{tokens[bos]} $A {tokens[bos]} $B',
        special_tokens=[(tokens[bos], bos)])
  return tokenizer


def _pre_tokenizer(split):
  if split == 'smollm':
    return pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
  if split not in _SPLITS:
    raise ValueError(
        f'Unknown GGUF pre-tokenizer {split!r}; known: smollm, '
        f'{", ".join(_SPLITS)}. Put the model\'s own tokenizer.json into the '
        f'folder, or add its pattern to gguf_tokenizer.py.')
  return pre_tokenizers.Sequence([
      pre_tokenizers.Split(tokenizers.Regex(_SPLITS[split]), 'isolated'),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
