-- Tests zt.initialize with stand-ins that record their arguments: the arguments for mesh, program, passes and trainer, and the
-- use of the trainer's results.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local optim = require "zt.optim"
local stand_ins = require "support.stand_ins"
local units = require "zt.deepspeed.engine.units"

local build, model = stand_ins.build, stand_ins.model

local TestBuild = {}

function TestBuild:test_batch_and_precision()
  local _, given = build{gradient_accumulation_steps = 4}
  lu.assertEquals({given.program, given.mesh, given.passes}, {{micro_batches = 4, precision = "fp32"}, {dp = -1}, {"shard"}})
  local function precision(config)
    local _, all = build(config)
    return all.program.precision
  end
  lu.assertEquals(precision{bf16 = {enabled = true}}, "bf16")
  lu.assertEquals(precision{bf16 = {enabled = true}, communication_data_type = "bf16"}, {params = "bf16", reduce = "bf16"})
  lu.assertEquals(precision{fp16 = {enabled = true}, data_types = {grad_accum_dtype = "fp16"}}, {params = "fp16", grads = "fp16"})
end

function TestBuild:test_zero()
  local _, given = build{zero_optimization = {stage = 2, reduce_bucket_size = 10, allgather_bucket_size = 20, sub_group_size = 30,
                                              stage3_max_live_parameters = 40}}
  lu.assertEquals(given.shard, {axis = "dp", stage = 2, reduce_every = "micro_batch", bucket_bytes = 40,
                                gather_bucket_bytes = 80, sub_group_size = 30})
  _, given = build{zero_optimization = {stage = 3, stage3_max_live_parameters = 40, stage3_max_reuse_distance = 50,
                                        stage3_prefetch_bucket_size = 60, stage3_param_persistence_threshold = 99}}
  lu.assertEquals(given.shard, {axis = "dp", stage = 3, reduce_every = "micro_batch", max_live = 40, max_reuse_distance = 50,
                                prefetch = 1, persist_below = 100})
  _, given = build{zero_optimization = {stage = 3, stage3_model_persistence_threshold = 1e5}}
  lu.assertEquals(given.shard.persist_below, 1e5 + 1) -- from DeepSpeed's default of stage3_param_persistence_threshold
  _, given = build{zero_optimization = {stage = 3, stage3_model_persistence_threshold = 150,
                                        stage3_param_persistence_threshold = 1e9}}
  lu.assertEquals(given.shard.persist_below, 1000) -- the units of 42 and 100 elements stay gathered
end

function TestBuild:test_copies_of_the_shards()
  local axes = {mesh = stand_ins.of("Mesh", {}), axis = stand_ins.of("Axis", {name = "dp", size = 4}),
                replicate = stand_ins.of("Axis", {size = 2})}
  local _, given = build({zero_optimization = {mics_shard_size = 4}}, axes)
  lu.assertEquals({given.mesh, given.shard.axis, given.shard.replicate}, {nil, axes.axis, axes.replicate})
  lu.assertErrorMsgContains("zt.initialize.replicate has 2 ranks, but zero_optimization.mics_shard_size means 4 copies", build,
                            {zero_optimization = {mics_shard_size = 2}}, axes)
  lu.assertErrorMsgContains("has 2 ranks, but", build, {}, axes)
  lu.assertErrorMsgContains("zt.initialize.replicate is an axis of a mesh", build, {}, {replicate = axes.replicate})
end

function TestBuild:test_the_engine_makes_the_mesh_of_copies()
  local undo = stand_ins.replace{{zt.world, "size", 6}}
  local _, given = build{zero_optimization = {mics_shard_size = 2}}
  undo()
  lu.assertEquals(given.mesh, {replica = 3, dp = -1, order = {"replica", "dp"}})
  lu.assertEquals({given.shard.axis, given.shard.replicate}, {"dp", "replica"})
end

function TestBuild:test_recompute()
  for _, config in ipairs {{activation_checkpointing = {number_checkpoints = 3}},
                           {pipeline = {activation_checkpoint_interval = 2}}} do
    local _, given = build(config)
    lu.assertEquals({given.passes, given.recompute}, {{"shard", "recompute"}, {every = 1}})
  end
end

function TestBuild:test_the_trainers_options()
  local _, given = build{gradient_clipping = 0}
  lu.assertEquals(given.trainer.optimizer.kind, "sgd")
  given.trainer.optimizer = nil
  lu.assertEquals(given.trainer, {on_nonfinite = "skip"})
  local scale = {loss_scale = 0, initial_scale_power = 8, loss_scale_window = 1000, hysteresis = 2,
                 consecutive_hysteresis = false, min_loss_scale = 1}
  _, given = build{fp16 = {enabled = true, initial_scale_power = 8}}
  lu.assertEquals({given.trainer.fp16, given.trainer.clip}, {scale, 1})
  _, given = build{bf16 = {enabled = true, check_grad_overflow = false}}
  lu.assertEquals(given.trainer.on_nonfinite, "error")
end

function TestBuild:test_the_scripts_own_objects()
  local schedule = optim.warmup_cosine{total = 10}
  local own = {optimizer = optim.lion{lr = 0.75}, schedule = schedule}
  local config = {scheduler = {type = "WarmupLR"}}
  local engine, given, lines = build(config, own)
  lu.assertEquals({engine.optimizer, engine.schedule, given.trainer.schedule}, {own.optimizer, schedule, schedule})
  lu.assertStrContains(lines, "the script's own optimizer is used, not the configuration's sgd")
  lu.assertStrContains(lines, "the script's own schedule is used, not the configuration's WarmupLR")
  lu.assertEquals(engine:get_lr(), schedule:lr(0, 0.75))
  engine = build(config, {optimizer = own.optimizer})
  lu.assertEquals(engine.config.schedule.rate(1001), 0.75) -- the schedule's peak is the rate of the optimizer in use
  config.scheduler.params = {warmup_max_lr = "auto"}
  lu.assertEquals(build(config, {optimizer = own.optimizer}).config.schedule.rate(1001), 0.75)
  engine = build({}, {schedule = function(updates) return updates + 7 end})
  lu.assertEquals({engine:get_lr(), engine.trainer.lr}, {7, 7})
end

function TestBuild:test_auto()
  local engine = build({optimizer = {type = "AdamW", params = {lr = "auto"}}, train_batch_size = "auto"},
                       {auto = {optimizer = {lr = 0.125}, batch = {global = 3}}})
  lu.assertEquals({engine.optimizer.lr, engine:gradient_accumulation_steps()}, {0.125, 3})
end

local TestResults = {}

-- Runs a step of one micro-batch by forward, backward and step.
local function step(engine)
  engine:backward(engine{x = zt.zeros{1}})
  engine:step()
end

function TestResults:test_skipped_steps_move_no_schedule()
  local engine = build{fp16 = {enabled = true}, scheduler = {type = "WarmupLR", params = {warmup_type = "linear",
                                                                                      warmup_num_steps = 10}}}
  lu.assertEquals(engine:loss_scale(), 2^16)
  local rates = {}
  for index, is_overflow in ipairs {false, true, true, false, false} do
    rates[index] = engine.trainer.lr
    engine.trainer.is_overflow, engine.trainer.loss_scale = is_overflow, 2^index
    step(engine)
    lu.assertEquals({engine:was_step_applied(), engine:loss_scale(), engine:get_lr()},
                    {not is_overflow, 2^index, engine.trainer.lr})
  end
  local rate = engine.config.schedule.rate
  lu.assertEquals(rates, {rate(0), rate(1), rate(1), rate(1), rate(2)})
  lu.assertEquals({engine.global_steps, engine.skipped_steps, engine:get_lr()}, {5, 2, rate(3)})
end

function TestResults:test_set_lr_holds_until_the_schedule_is_asked_back()
  local engine = build{scheduler = {type = "WarmupLR", params = {warmup_num_steps = 4}}}
  engine:set_lr(0.5)
  for _ = 1, 3 do
    lu.assertEquals({engine:get_lr(), engine.trainer.lr}, {0.5, 0.5})
    step(engine)
  end
  engine:set_lr()
  lu.assertEquals({engine:get_lr(), engine.trainer.lr}, {engine.config.schedule.rate(3), engine.config.schedule.rate(3)})
  engine = build{}
  engine:set_lr(0.5)
  engine:set_lr(nil)
  lu.assertEquals({engine:get_lr(), engine.trainer.lr}, {0.25, nil}) -- the optimizer's own rate
end

function TestResults:test_inputs_are_cast_where_asked()
  local batch = {x = zt.zeros{1, 2}, tokens = zt.zeros({1}, {dtype = "int64"})}
  local engine = build{fp16 = {enabled = true, auto_cast = true}}
  engine:train_batch(batch)
  lu.assertEquals({engine.trainer.batch.x:dtype(), engine.trainer.batch.tokens:dtype()}, {"float16", "int64"})
  engine:forward(batch)
  lu.assertEquals(engine.trainer.batch.x:dtype(), "float16")
  engine = build{fp16 = {enabled = true}}
  engine:train_batch(batch)
  lu.assertEquals(engine.trainer.batch.x:dtype(), "float32")
end

local TestUnits = {}

function TestUnits:test_sizes_are_those_of_the_flat_layout() lu.assertEquals(units.sizes(model), {100, 42, 1000}) end

function TestUnits:test_which_stay_whole()
  local sizes = {100, 42, 1000, 42}
  local function whole(limit, total)
    local below, out = units.persist_below(sizes, limit, total), 0
    for _, numel in ipairs(sizes) do out = out + (numel < below and numel or 0) end
    return out
  end
  lu.assertEquals({whole(0), whole(41), whole(42), whole(99), whole(100), whole(1e9)}, {0, 0, 84, 84, 184, 1184})
  lu.assertEquals({whole(1e9, 1184), whole(1e9, 1183), whole(1e9, 183), whole(1e9, 83), whole(100, 0)}, {1184, 184, 84, 0, 0})
end

function TestUnits:test_how_many_are_gathered_ahead()
  local sizes = {100, 42, 1000}
  local function ahead(elements, persist_below) return units.prefetch(sizes, elements, persist_below or 0) end
  lu.assertEquals({ahead(0), ahead(1), ahead(1000), ahead(1001), ahead(1100), ahead(1101), ahead(1e9)}, {0, 1, 1, 2, 2, 3, 3})
  lu.assertEquals({ahead(1e9, 43), ahead(1e9, 101), ahead(1e9, 1e9)}, {2, 1, 0}) -- units that stay gathered do not count
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{
  {"TestBuild", TestBuild}, {"TestResults", TestResults}, {"TestUnits", TestUnits},
})
