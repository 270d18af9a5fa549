--- Which modules of Hugging Face's have the rows of which adapters of a model, since one side may have one matrix where the other
-- has several: an adapter of all rows of a fused matrix is one adapter of each module with the same A; adapters of parts of a
-- fused module are one adapter of it, whose A has theirs one below the other.

local links = {}

--- Returns a list of {modules = {name, ...}, adapters = {...}}, of which one has a single element. modules: as Modules.of returns
-- them. adapters: as lora.list returns them.
function links.of(modules, adapters)
  local list, around = {}, {}
  for _, adapter in ipairs(adapters) do
    local names = modules:of_rows(adapter)
    local part = modules.linear[names[1]]
    if part.rows > adapter.rows then -- other adapters may be in the same module
      local link = around[names[1]]
      if not link then
        link = {modules = names, adapters = {}}
        around[names[1]], list[#list + 1] = link, link
      end
      table.insert(link.adapters, adapter)
    else
      list[#list + 1] = {modules = names, adapters = {adapter}}
    end
  end
  return list
end

--- Returns whether adapters are parts of a module's adapter.
function links.is_stacked(link, modules)
  local adapter = link.adapters[1]
  return modules.linear[link.modules[1]].rows > adapter.rows
end

--- Returns {rank =, alpha =, scale =} of the one adapter of a module that has those of its parts. Its scale is the largest of
-- theirs.
function links.stacked(link, is_by_root)
  local largest, rank = link.adapters[1], 0
  for _, adapter in ipairs(link.adapters) do
    rank = rank + adapter.rank
    if math.abs(adapter.scale) > math.abs(largest.scale) then largest = adapter end
  end
  local ratio = rank / largest.rank
  return {rank = rank, alpha = largest.alpha * (is_by_root and math.sqrt(ratio) or ratio), scale = largest.scale}
end

return links
