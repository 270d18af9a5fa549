-- ztoolkit io: measures the disks that optimizer state, parameters and activations are moved to.
--
--   ztoolkit io bench /nvme0 /nvme1   reads and writes swap files as training does; prints the block and depth to use
--
-- If fio is installed, its rates stand beside, with the same block and depth.
local zt = require "zt"
local command = require "zt.command"
local core = require "zt.core"
local offload = require "zt.offload"
local shell_word = require "zt.run.shell_word"

local MIB = 2 ^ 20

local function usage(stream, status)
  stream:write("usage: ztoolkit io bench FOLDER...\n",
               "Measures disks. ztoolkit io bench --help describes the options.\n")
  os.exit(status)
end

local function rate_text(bytes_per_second) return bytes_per_second and ("%.2f"):format(bytes_per_second / 1e9) or "-" end

-- Runs a shell command. Returns its output, or nil if it fails.
local function output_of(line)
  local pipe = assert(io.popen(line .. " 2>/dev/null"))
  local text = pipe:read "*a"
  return pipe:close() and text or nil
end

-- Returns the rates of fio for one kind of access ("read", "write", "rw") of a setting, summed over reads and writes.
local function fio_rate(options, setting, access)
  local files = {}
  for i, folder in ipairs(options.folders) do files[i] = folder .. "/ztoolkit-io-bench" end
  -- Huge pages, as swap files have them: with small ones fio reaches half of the rates.
  local line = ("GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=bench --filename=%s --rw=%s --bs=%d --iodepth=%d "
    .. "--size=%d --direct=%d --ioengine=io_uring "
    .. "--fixedbufs=1 --runtime=%g --time_based --file_service_type=roundrobin --unlink=1 --output-format=json")
    :format(shell_word(table.concat(files, ":")), access, setting.block, setting.depth, options.size * MIB,
            options.cached and 0 or 1, options.seconds)
  local text = output_of(line)
  for _, file in ipairs(files) do os.remove(file) end -- if fio was killed
  local found, report = pcall(core.json.decode, (text or ""):match "{.*}" or "")
  if not found then return nil end
  local job = report.jobs[1]
  return job.read.bw_bytes + job.write.bw_bytes
end

-- Measures one setting, {block = bytes, depth =}, by swap files and by fio.
local function measure(options, setting, has_fio)
  local row = {block = setting.block, depth = setting.depth}
  row.own = offload.measure_disk{folder = options.folders, size = options.size * MIB, block = setting.block,
                                 depth = setting.depth, direct = not options.cached, seconds = options.seconds}
  if has_fio then
    row.fio = {read = fio_rate(options, setting, "read"), write = fio_rate(options, setting, "write"),
               mixed = fio_rate(options, setting, "rw")}
  end
  return row
end

-- An optimizer reads and writes equally much, so the mixed rate decides; of those within 3 %, the least memory under way.
local function best_of(rows)
  local fastest = 0
  for _, row in ipairs(rows) do fastest = math.max(fastest, row.own.mixed) end
  local best
  for _, row in ipairs(rows) do
    local is_fast = row.own.mixed >= 0.97 * fastest
    if is_fast and not (best and best.block * best.depth <= row.block * row.depth) then best = row end
  end
  return best
end

local function print_rows(rows, has_fio)
  local header = {"block MiB", "depth", "read GB/s", "write", "mixed"}
  if has_fio then
    for _, name in ipairs{"fio: read", "write", "mixed"} do header[#header + 1] = name end
  end
  local lines = {header}
  for _, row in ipairs(rows) do
    local cells = {("%g"):format(row.block / MIB), row.depth}
    for _, side in ipairs{row.own, row.fio} do
      for _, name in ipairs{"read", "write", "mixed"} do cells[#cells + 1] = rate_text(side[name]) end
    end
    lines[#lines + 1] = cells
  end
  print(zt.text.columns(lines))
end

local function bench()
  local options = zt.cli{
    name = "io bench", usage = "ztoolkit io bench",
    about = "Reads and writes swap files in the folders, and prints the rates and the setting to use.",
    positional = {{"folders", "folders, one per disk, over which a swap file is striped", at_least = 1}},
    options = {
      {"blocks", {1, 4, 16}, "MiB of one operation"},
      {"depths", {2, 8, 32}, "operations under way at once"},
      {"size", 1024, "MiB of the swap file", at_least = 1},
      {"seconds", 1, "seconds of each measurement", above = 0, type = "number"},
      {"cached", false, "go through the page cache, as where the file system has no direct I/O"},
      {"fio", true, "also run fio, if it is installed"},
    },
  }
  local has_fio = options.fio and output_of "fio --version" ~= nil
  local rows = {}
  for _, block in ipairs(options.blocks) do
    for _, depth in ipairs(options.depths) do
      rows[#rows + 1] = measure(options, {block = block * MIB, depth = depth}, has_fio)
    end
  end
  print_rows(rows, has_fio)
  local best = best_of(rows)
  if not (options.cached or best.own.direct) then
    print "the file system has no direct I/O: these are rates of the page cache, and of memory while it has room"
  end
  if not best.own.pinned then
    print "the memory could not be pinned (ulimit -l): each operation costs more time of the processor"
  end
  local folders = {}
  for i, folder in ipairs(options.folders) do folders[i] = ("%q"):format(folder) end
  print(("use folder = {%s}, block = %g * 2^20, depth = %d"):format(table.concat(folders, ", "), best.block / MIB, best.depth))
end

local name = table.remove(arg, 1)
if name == "--help" or name == "-h" then usage(io.stdout, 0) end
if not name then usage(io.stderr, 2) end
if name ~= "bench" then
  io.stderr:write(("io: unknown command '%s'%s\n"):format(name, core.suggest(name, {"bench"})))
  os.exit(2)
end
command("io bench", bench)
