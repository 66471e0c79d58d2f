"""Every key there is, with its unit and its default; experiments override.

A key that is missing here does not exist: the config is locked, and an
unknown `--config.x=` stops the program. Placeholders (None) mean "as the
algorithm's published point has it".
"""
from ml_collections import config_dict

placeholder = config_dict.placeholder


def get_config():
  """Returns a small, complete GRPO experiment on generated arithmetic."""
  c = config_dict.ConfigDict()
  c.seed = 0  # data order, initial weights, draws
  c.num_steps = 100  # RL steps; each samples one rollout batch

  c.model = m = config_dict.ConfigDict()
  m.path = ''  # Hugging Face folder or hub id; '' makes random weights
  m.dtype = 'float32'  # of activations: float32, bfloat16; weights float32
  m.remat = 'dots'  # what the backward pass recomputes of a layer: none,
  # dots (all but products with weights), layer (everything)
  m.lora = b = config_dict.ConfigDict()  # adapters in training
  b.rank = 0  # of the adapters; 0 trains all weights
  b.alpha = 16.0  # the adapters' product counts alpha / rank times
  b.modules = ('query', 'key', 'value', 'output', 'gate', 'up', 'down')  # that
  # have one: any of these
  m.architecture = a = config_dict.ConfigDict()  # read where path is ''
  a.family = 'llama'  # llama, qwen2, qwen3
  a.hidden_size = 128  # width of the residual stream
  a.num_layers = 4  # decoder layers
  a.num_heads = 4  # query heads
  a.num_kv_heads = 4  # key and value heads, a divisor of num_heads
  a.head_dim = 32  # width of a head, even
  a.intermediate_size = 512  # width of the gated MLP
  a.max_positions = 512  # prompt and completion together must fit

  c.task = t = config_dict.ConfigDict()
  t.name = 'arithmetic'  # see rlclip.data.tasks.names()
  t.data_dir = ''  # folder of the data sets; '' takes $RLCLIP_DATA
  t.options = config_dict.ConfigDict()  # keyword arguments of the task
  t.drop = ()  # rows not trained on: too_long, duplicate, overlap (with tests)

  c.warm_start = w = config_dict.ConfigDict()  # supervised, before step 0
  w.task = ''  # whose prompts and completions; '' for the run's own task
  w.options = config_dict.ConfigDict()  # keyword arguments of that task
  w.num_steps = 0  # updates; 0 for none
  w.batch_size = 128  # demonstrations an update
  w.learning_rate = 1e-3  # peak; cosine to 0
  w.slip_rate = 0.0  # share of working steps that demonstrations get wrong

  c.algorithm = g = config_dict.ConfigDict()
  g.name = 'grpo'  # see rlclip.algorithms.names()
  g.bounds = placeholder(str)  # how the region is drawn, as 'binary_tv'
  g.divergence = placeholder(str)  # that draws the bounds, as 'pearson'
  g.delta = placeholder(float)  # divergence budget of the trust region
  g.eps_low = placeholder(float)  # ratio clip below: 1 - eps_low
  g.eps_high = placeholder(float)  # ratio clip above: 1 + eps_high
  g.cap = placeholder(float)  # of the ratio where A < 0 (dual clip)
  g.penalty = placeholder(str)  # divergence with a price, as 'reverse_kl'
  g.beta = placeholder(float)  # weight of the penalty, 1 / nats; 0 for none
  g.estimator = placeholder(str)  # of the penalty, as 'exact'
  g.toward = placeholder(str)  # the penalty's target: reference, anchor
  g.gate = placeholder(str)  # what leaving the region does, as 'dual_clip'
  g.level = placeholder(str)  # whose ratio: token, sequence, ...
  g.anchor = placeholder(str)  # of the ratio: behavior, old
  g.mismatch = placeholder(str)  # sampler / learner correction (anchor old)
  g.reduction = placeholder(str)  # of token losses, as 'token_mean'
  g.advantage = placeholder(str)  # estimator, as 'group_mean'
  g.entropy_bonus = placeholder(float)  # reward per nat of entropy; 0 for none
  g.width_dial = placeholder(str)  # of the bounds, as 'ramp(end=0.5)'
  g.beta_dial = placeholder(str)  # of the penalty, as 'target_kl(target=0.01)'

  c.rollout = r = config_dict.ConfigDict()
  r.num_prompts = 32  # prompts a step (P)
  r.group_size = 8  # samples a prompt (G)
  r.prompt_length = 64  # longest prompt, tokens (S)
  r.completion_length = 64  # longest completion, tokens (C)
  r.temperature = 1.0  # of sampling and scoring, > 0
  r.num_slots = 0  # completions decoded at once; 0 takes all of a step
  r.steps_per_round = 16  # tokens a slot draws before the host looks
  r.max_refills = 0  # times constant groups are replaced (DAPO); 0 keeps them
  r.max_error_frac = 0.05  # completions that may end in logits not finite
  r.max_staleness = 0  # steps sampled ahead, by weights so many versions behind

  c.sampler = s = config_dict.ConfigDict()  # who draws the completions
  s.kind = 'local'  # local (this process), or servers: vllm, sglang
  s.urls = ()  # of the servers, ('http://host:8000',)
  s.model = 'policy'  # the name they serve it under
  s.weights_folder = ''  # absolute; written here, read by the servers
  s.dtype = 'float32'  # that they compute in: float32, bfloat16
  s.in_flight = 256  # requests a server has at a time
  s.timeout = 600.0  # seconds for a completion
  s.reload_timeout = 600.0  # seconds for new weights
  s.retries = 5  # further tries of a request, on whatever server
  s.patience = 600.0  # seconds to wait where no server is there

  c.reference = f = config_dict.ConfigDict()  # of a penalty toward one
  f.every = 0  # RL steps after which it becomes the policy (RPG); 0 never
  f.max_kl = 0.0  # nats of averaged kl above which it does; 0 for no limit
  f.kl_decay = 0.9  # of that average, a step; 0 takes the last step's kl

  c.learner = u = config_dict.ConfigDict()
  u.num_mini_batches = 1  # optimizer updates a pass over the rollout batch
  u.num_epochs = 1  # passes over the rollout batch
  u.num_micro_batches = 1  # parts of a mini-batch, accumulated
  u.logits_chunk = 512  # tokens whose logits exist at once
  u.drop_truncated = False  # leave completions that hit the limit out

  c.optimizer = o = config_dict.ConfigDict()
  o.name = 'adamw'  # adamw, schedule_free_adamw (b1 weighs its average), muon
  o.learning_rate = 1e-6  # at the peak
  o.multipliers = ()  # of the rate, by group of parameters: 'embedding=0.1',
  # head, attention, mlp, norm, bias; 0 freezes
  o.schedule = 'constant'  # constant, cosine, linear; after the warm-up
  o.warmup_steps = 0  # optimizer updates
  o.state_dtype = 'float32'  # of the first moment: float32, bfloat16
  o.b1 = 0.9  # decay of the first moment
  o.b2 = 0.999  # decay of the second moment
  o.epsilon = 1e-8  # added to the root of the second moment
  o.weight_decay = 0.0  # decoupled; matrices only
  o.max_grad_norm = 1.0  # global norm; 0 for none

  c.mesh = h = config_dict.ConfigDict()  # one size may be -1: what is left
  h.data = -1  # replicas
  h.fsdp = 1  # ways to cut batch and parameters
  h.tensor = 1  # ways to cut heads, mlp and vocabulary

  c.reward = d = config_dict.ConfigDict()
  d.num_workers = 1  # verifier processes
  d.deadline = 5.0  # seconds an answer
  d.on_failure = 'none'  # none (row left out), zero; raise stops at an error
  d.also = ()  # further rewards in training, ('repetition=0.1', 'think=0.5')
  d.overlong_buffer = 0  # tokens before the limit that cost (DAPO); 0 for none
  d.overlong_factor = 1.0  # what a completion at the limit loses, in rewards

  c.evaluation = e = config_dict.ConfigDict()
  e.every = 10  # RL steps; 0 for the first and last only
  e.tasks = ()  # further test sets; the training task's is always there
  e.num_problems = 256  # of each test set; 0 for all
  e.num_samples = 1  # completions a problem
  e.temperature = 1.0  # 0 is greedy
  e.top_p = 1.0  # nucleus; 1 keeps all
  e.top_k = 0  # 0 keeps all

  c.checkpoint = k = config_dict.ConfigDict()
  k.every = 10  # RL steps
  k.keep_last = 2  # newest checkpoints kept
  k.keep_best = True  # and the best by pass@1

  c.logging = n = config_dict.ConfigDict()
  n.tensorboard = True  # event files in tb/
  n.wandb_project = ''  # '' for none; needs the extra `wandb`
  return c.lock()
