r"""Compares our greedy completions with transformers', live.

python -m tests.sampler.greedy_parity --model=.cache/smollm2

Needs the extra `torch`, and GSM8K in RLCLIP_DATA: its first test problems,
chat template applied, float32. A completion that differs is told with the gap
between the two tokens' logits where they part; exits with 1 where that gap is
more than rounding explains, 1e-3.
"""
from absl import app, flags
import numpy as np
import torch
import transformers

from rlclip.data import tasks
from rlclip.data import tokenizer as tokenizer_lib
from rlclip.models import huggingface
from rlclip.sampler import engine
from rlclip.types import Request, SamplingSpec

_MODEL = flags.DEFINE_string('model', '.cache/smollm2', 'Its folder.')
_COUNT = flags.DEFINE_integer('num_prompts', 20, 'Problems.')
_TOKENS = flags.DEFINE_integer('max_tokens', 128, 'Of a completion.')
_GAP = 1e-3  # nats; our logits are within 2e-4 of transformers'


def main(_):
  task, tokenizer = tasks.get('gsm8k'), tokenizer_lib.load(_MODEL.value)
  prompts = [
      tasks.make_prompt(task, task.examples('test')[i], tokenizer).tokens
      for i in range(_COUNT.value)]
  config, params = huggingface.load(_MODEL.value)
  sampler = engine.Engine(
      config, seed=0, num_slots=_COUNT.value, max_prompt=512,
      max_tokens=_TOKENS.value)
  sampler.load_weights(params, 0)
  spec = SamplingSpec(_TOKENS.value, tokenizer.stop_ids, temperature=0.0)
  ours = sampler.generate(
      [Request(i, prompt, spec) for i, prompt in enumerate(prompts)])

  theirs = transformers.AutoModelForCausalLM.from_pretrained(
      _MODEL.value, dtype=torch.float32)
  passed, equal = True, 0
  for i, (prompt, completion) in enumerate(zip(prompts, ours, strict=True)):
    ids = torch.tensor(prompt[None].astype(np.int64))
    out = theirs.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False,
        max_new_tokens=_TOKENS.value, temperature=None, top_p=None,
        eos_token_id=list(tokenizer.stop_ids),
        pad_token_id=tokenizer.end_id)[0, len(prompt):].numpy()
    if np.array_equal(out, completion.tokens):
      equal += 1
      continue
    both = zip(out, completion.tokens)
    at = next((j for j, (a, b) in enumerate(both) if a != b), None)
    if at is None:
      print(f'problem {i}: one ends before the other')
      passed = False
      continue
    text = np.concatenate([prompt, out[:at]])[None]
    with torch.no_grad():
      logits = theirs(torch.tensor(text.astype(np.int64))).logits[0, -1]
    gap = float(logits[out[at]] - logits[completion.tokens[at]])
    passed &= abs(gap) <= _GAP
    print(f'problem {i}: they part at token {at}; gap of the logits {gap:.2e}')
  count = sum(len(c.tokens) for c in ours)
  print(f'{equal} of {len(ours)} completions equal, {count} tokens')
  if not passed:
    raise SystemExit(1)


if __name__ == '__main__':
  app.run(main)
