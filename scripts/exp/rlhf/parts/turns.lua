--- Models that take the memory in turns: what a phase does not need is in files, or in the host's memory.
local turns = {}

-- What leaves the memory: of a model that trains, all but what evaluates; of a frozen one, its parameters.
local TRAINED, FROZEN = {"optimizer", "gradients"}, {"parameters"}

--- Returns enter(names), which brings the models of these names into memory and takes the others out of it. models: a list of
-- {name, trainer, is_frozen}, in one order on all ranks; to: "host" or a folder; nil: all stay.
function turns.of(models, to)
  local is_away = {}
  local where = to == "host" and {to = "host"} or {to = "nvme", folder = to}
  return function(names)
    if not to then return end
    local needed = {}
    for _, name in ipairs(names) do needed[name] = true end
    for _, model in ipairs(models) do
      local name, trainer, is_frozen = unpack(model)
      if needed[name] and is_away[name] then trainer:fetch() end
      if not needed[name] and not is_away[name] then trainer:evict(is_frozen and FROZEN or TRAINED, where) end
      is_away[name] = not needed[name]
    end
  end
end

return turns
