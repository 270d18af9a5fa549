-- Tests that a transfer gives each tensor the bits that it has in another layout. Also runs on two, three and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local layouts = require "transfer.layouts"

local PAIRS = 72

local TestLayouts = {}

-- Every third pair is of models with experts and routers whose biases are no parameters. Small buckets make many rounds.
function TestLayouts:test_pairs()
  for pair = 1, PAIRS do
    local dice, is_mixture = layouts.dice(pair), pair % 3 == 0
    local first, second = layouts.draw(dice, is_mixture), layouts.draw(dice, is_mixture)
    local text = ("pair %d: from %s to %s"):format(pair, layouts.text(first), layouts.text(second))
    zt.log.debug("%s", text)
    local from = layouts.trainer(layouts.options(1, is_mixture), first)
    local to = layouts.trainer(layouts.options(2, is_mixture), second)
    layouts.randomise(from, pair)
    lu.assertNotNil(layouts.wrong(from, to, second), text .. ", before")
    local options = {bucket_bytes = ({2 ^ 26, 2 ^ 14, 2 ^ 10})[dice(3)]}
    local report = zt.transfer(from, to, options)
    lu.assertEquals(report.parameters, #to:tensors(), text)
    local wrong = layouts.wrong(from, to, second)
    lu.assertNil(wrong, text)
    layouts.randomise(from, pair + 1000)
    local again = zt.transfer(from, to, options)
    lu.assertEquals({again.sent_bytes, again.local_bytes}, {report.sent_bytes, report.local_bytes}, text)
    lu.assertNil(layouts.wrong(from, to, second), text .. ", again")
    if first.mesh and second.mesh then
      lu.assertEquals(zt.transfer(to, from, options).parameters, report.parameters, text)
      lu.assertNil(layouts.wrong(to, from, first), text .. ", and back")
    end
  end
end

layouts.run{{"TestLayouts", TestLayouts}}
