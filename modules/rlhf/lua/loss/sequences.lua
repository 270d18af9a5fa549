--- Sums over sequences that share rows. A batch says by `sequence`, int64 [rows, seq], to which sequence of its row a position
-- belongs: 0, 1, ...; -1 at padding. Sizes depend on shapes only, so a plan can compute them without values.

local class = require "zt.class"
local core = require "zt.core"
local fail = require "zt.fail"

local Sequences = class "Sequences"

-- Returns 0, 1, ... by row, like a field [rows, seq].
local function row_numbers(field) return (field:mul(0) + 1):cumsum(0) - 1 end

-- field: `sequence` of the batch.
function Sequences:init(field)
  local rows, seq = field:size(0), field:size(1)
  self.rows, self.seq = rows, seq
  self.per_row = seq + seq % 2 -- even, so that the two sequences of a pair are neighbours
  self.slots = rows * self.per_row
  self.field = field
  self.slot = (row_numbers(field) * self.per_row + field):masked_fill(field:lt(0), self.slots):flatten()
end

--- Returns the sums of values [rows, seq] over each sequence: [slots], 0 for sequences that are not there. Slot number
-- row * per_row + n is that of sequence n of the row. What stands at padding does not count.
function Sequences:sums(values)
  return values:new_zeros({self.slots + 1}):index_add(0, self.slot, values:flatten()):narrow(0, 0, self.slots)
end

--- Returns numbers by sequence [slots] at the positions of their sequences [rows, seq], and 0 at padding.
function Sequences:spread(sums)
  return core.cat({sums, sums:new_zeros({1})}):index_select(0, self.slot):view{self.rows, self.seq}
end

--- Returns numbers by sequence as those of pairs [pairs, 2], of which some are not there: sequences 2 n and 2 n + 1 are pair n.
function Sequences:by_pair(sums) return sums:view{math.floor(self.slots / 2), 2} end

--- Returns whether a position is the last one of its sequence, bool [rows, seq].
function Sequences:is_last()
  local field = self.field
  local after = core.cat({field:narrow(1, 1, self.seq - 1), field:new_full({self.rows, 1}, -1)}, 1)
  return field:ne(after):logical_and(field:ge(0))
end

--- Returns whether a position is the first one of its sequence, bool [rows, seq].
function Sequences:is_first()
  local field = self.field
  local before = core.cat({field:new_full({self.rows, 1}, -1), field:narrow(1, 0, self.seq - 1)}, 1)
  return field:ne(before):logical_and(field:ge(0))
end

local sequences = {}

--- Returns the sums over the sequences of the layer's micro-batch.
function sequences.of(ctx) return Sequences(ctx:batch "sequence") end

--- Returns the field `sequence` of a micro-batch for a layer's count, or fails if there is none or if its numbers do not fit.
-- loss: the function that needs it, for the message.
function sequences.checked(batch, loss)
  local field = batch "sequence"
  if not field then
    fail("%s: the batch has no field 'sequence', which says what sequence of its row each position belongs to: data.preferences "
      .. "and rlhf.batches make it", loss)
  end
  if field:device() == "meta" or field:numel() == 0 then return field end
  local largest = field:max():item()
  if largest >= field:size(1) then
    fail("%s: sequence %d in a row of %d positions: the field 'sequence' numbers the sequences of a row from 0", loss, largest,
         field:size(1))
  end
  return field
end

--- Returns the number of sequences of the field in which `counts`, bool [rows, seq], is true somewhere.
function sequences.number(field, counts)
  if field:device() == "meta" then return field:size(0) end
  return Sequences(field):sums(counts:to "int64"):gt(0):sum():item()
end

--- Returns the sums over a field, without a context.
function sequences.new(field) return Sequences(field) end

return sequences
