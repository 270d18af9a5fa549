-- Prints docs/deepspeed_keys.md, the table of all keys of DeepSpeed's configuration; a test compares the two.
--
--   ztoolkit run scripts/dev/deepspeed_keys.lua > docs/deepspeed_keys.md
io.write(require "zt.deepspeed.keys".document())
