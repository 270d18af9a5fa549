--- Makes the optimizers of random cases: those of zt.optim, and one in Lua.
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

--- Returns the optimizer that a case describes: {name, options}.
return function(described) return (own[described[1]] or optim[described[1]])(described[2]) end
