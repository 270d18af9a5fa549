--- Makes the optimizers of random cases: those of zt.optim, and some in Lua.
local zt = require "zt"
local optim = require "zt.optim"

local own = {}

-- Gradient descent with momentum.
function own.lua_momentum(options)
  return zt.optimizer{
    name = "lua_momentum", lr = options.lr, weight_decay = options.weight_decay, states = {velocity = "like"},
    step = function(info, p, g, state)
      state.velocity:mul_(0.9):add_(g)
      p:sub_(state.velocity * info.lr + p * (info.lr * info.decay))
    end,
  }
end

-- Momentum divided by the root of the rows' averaged squares, tensor by tensor.
function own.lua_rows(options)
  return zt.optimizer{
    name = "lua_rows", lr = options.lr, weight_decay = options.weight_decay, scope = "tensor",
    states = {velocity = "like", rows = "rows", count = function() return {1} end},
    step = function(info, p, g, state)
      local is_matrix = #info.shape > 1
      local squares = g * g
      state.count:add_(1)
      state.velocity:mul_(0.9):add_(g)
      state.rows:mul_(0.9):add_((is_matrix and squares:mean(-1) or squares) * 0.1)
      local root = (state.rows + 0.01):sqrt_()
      p:sub_(state.velocity / (is_matrix and root:unsqueeze(-1) or root) * info.lr + p * (info.lr * info.decay))
    end,
  }
end

--- Returns the optimizer that a case describes: {name, options}.
return function(described) return (own[described[1]] or optim[described[1]])(described[2]) end
