-- Prints docs/deepspeed_keys.md, the table of all keys of DeepSpeed's configuration. A test compares the file with this output.
--
--   ztoolkit run scripts/dev/deepspeed_keys.lua > docs/deepspeed_keys.md
io.write(require "zt.deepspeed.keys".document())
