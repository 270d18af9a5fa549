-- ztoolkit export-run: writes what runs have recorded for other tools: MLflow, and Weights & Biases.
--
--   ztoolkit export-run runs/gpt --mlflow mlruns
--   ztoolkit export-run runs/* --wandb-offline wandb --project gpt      then: wandb sync wandb/offline-run-*
local zt       = require "zt"
local command  = require "zt.command"
local fail     = require "zt.fail"
local mlflow   = require "zt.run.formats.mlflow"
local recorded = require "zt.run.formats.recorded"
local wandb    = require "zt.run.formats.wandb"

local options = zt.cli {
  name = "export-run", usage = "ztoolkit export-run",
  about = "Writes the options and numbers of runs for other tools. An earlier export of a run is replaced.",
  positional = {{"runs", "the folders of runs", at_least = 1}},
  options = {
    {"mlflow", nil, "write to this file store of MLflow, such as mlruns", type = "string"},
    {"wandb_offline", nil, "write offline runs of Weights & Biases below this folder, such as wandb", type = "string"},
    {"project", "ztoolkit", "the project of Weights & Biases"},
  },
}

command("export-run", function()
  if not options.mlflow and not options.wandb_offline then
    fail "say where to write to: give --mlflow FOLDER, --wandb-offline FOLDER, or both"
  end
  local runs = {}
  for place, path in ipairs(options.runs) do runs[place] = recorded.read(path) end
  for _, run in ipairs(runs) do
    if options.mlflow then print("wrote " .. mlflow.write(run, options.mlflow)) end
    if options.wandb_offline then print("wrote " .. wandb.write(run, options.wandb_offline, options.project)) end
  end
end)
