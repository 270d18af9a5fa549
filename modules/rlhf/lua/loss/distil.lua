--- rlhf.loss.distil{kind = "forward", ...}: a student learns the distributions of a teacher (Hinton et al. 2015, Agarwal et al.
-- 2024), on given answers or on its own. Per token that counts, with the distributions t of the teacher and s of the student,
-- both softmax(logits / temperature):
--
--   forward  KL(t || s)
--   reverse  KL(s || t)
--   jsd      beta KL(t || m) + (1 - beta) KL(s || m), where m = beta t + (1 - beta) s
--
-- With top = k, distributions are over k + 1 classes: the teacher's k likeliest tokens, and all others as one class.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local means = require "zt.rlhf.loss.means"
local valid = require "zt.rlhf.loss.valid"

local NAME = "rlhf.loss.distil"
local SCHEMA = {
  {"name", "string", "the term's name in reports and metrics", default = "distil"},
  {"kind", "string", "which divergence", default = "forward", one_of = {"forward", "reverse", "jsd"}},
  {"beta", "number", "the teacher's share of the mixture", default = 0.5, above = 0, below = 1,
   only_with = {"with kind = 'jsd'", function(o) return o.kind == "jsd" end}},
  {"temperature", "number", "divides the logits of the student; those of the teacher, too, unless top says that it is done",
   default = 1, above = 0},
  {"top", "integer", "the batch has so many of the teacher's likeliest tokens in place of its logits", at_least = 1},
}
for _, row in ipairs(means.SCHEMA) do SCHEMA[#SCHEMA + 1] = row end

-- Returns sum p (log p - log q) over the last dim. A class with p = 0 adds nothing.
local function divergence(log_p, log_q)
  local p = log_p:exp()
  return (p * (log_p - log_q)):masked_fill(p:eq(0), 0):sum(-1)
end

-- Returns log-probabilities [..., k] with one more class, which has the rest.
local function with_rest(logprobs)
  local rest = (1 - logprobs:exp():sum(-1, true)):clamp(2 ^ -1022)
  return core.cat({logprobs, rest:log()}, -1)
end

local LOSSES = {
  forward = function(t, s) return divergence(t, s) end,
  reverse = function(t, s) return divergence(s, t) end,
  jsd = function(t, s, o)
    local m = core.logaddexp(t + math.log(o.beta), s + math.log(1 - o.beta))
    return divergence(t, m) * o.beta + divergence(s, m) * (1 - o.beta)
  end,
}

-- Fails if the teacher has a token that the student has not.
local function check_tokens(tokens, vocabulary)
  if tokens:device() == "meta" or tokens:numel() == 0 then return end
  local largest = tokens:max():item()
  if largest < vocabulary then return end
  fail("%s: token %d is one of the teacher's likeliest, and the student has %d tokens: they need one vocabulary", NAME, largest,
       vocabulary)
end

-- Returns the log-probabilities of the teacher and of the student, [rows, seq, classes]. What the teacher's fields have where no
-- token counts has no influence.
local function logprobs_of(out, ctx, counts, o)
  local student, is_left_out = (out.logits:to "float64" / o.temperature):log_softmax(-1), counts:logical_not():unsqueeze(-1)
  if not o.top then
    local logits = ctx:batch "teacher_logits":to "float64":masked_fill(is_left_out, 0)
    if logits:size(-1) ~= student:size(-1) then
      fail("%s: the teacher has logits of %d tokens, and the student of %d: they need one vocabulary", NAME, logits:size(-1),
           student:size(-1))
    end
    return (logits / o.temperature):log_softmax(-1), student
  end
  local tokens, teacher = ctx:batch "teacher_tokens", ctx:batch "teacher_logprobs":to "float64"
  if tokens:size(-1) ~= o.top then
    fail("%s: the batch has %d tokens of the teacher, and top = %d", NAME, tokens:size(-1), o.top)
  end
  tokens = tokens:masked_fill(is_left_out, 0)
  check_tokens(tokens, student:size(-1))
  return with_rest(teacher:masked_fill(is_left_out, 0)), with_rest(student:gather(2, tokens))
end

local function run(out, ctx, o)
  local counts = valid.of(ctx, o.ignore_index)
  local teacher, student = logprobs_of(out, ctx, counts, o)
  local losses = LOSSES[o.kind](teacher, student, o)
  local agree = teacher:argmax(-1):eq(student:detach():argmax(-1)):logical_and(counts)
  return means.sum(ctx, losses, counts, o), {agreement = {agree:sum(), counts:sum()}}
end

--- Returns a layer. It reads `logits`, and the batch's labels, which say which tokens count, and teacher_logits [rows, seq,
-- vocab], or with `top` teacher_tokens and teacher_logprobs [rows, seq, top]; rlhf.teacher adds them. Metric: the share of
-- tokens at which both have the same likeliest class.
local function distil(value)
  local o = check.options(NAME, SCHEMA, value or {})
  means.check(NAME, o)
  local of_loss = means.of_loss(NAME, o, {})
  of_loss.name, of_loss.options, of_loss.inputs, of_loss.metrics = o.name, o, {"logits"}, {"agreement"}
  local of_means = of_loss.count
  of_loss.count = function(batch)
    local field = o.top and "teacher_logprobs" or "teacher_logits"
    if not batch(field) then fail("%s: the batch has no field '%s': rlhf.teacher adds it", NAME, field) end
    return of_means(batch)
  end
  return core.loss(function(out, ctx) return run(out, ctx, o) end, of_loss)
end

return distil
