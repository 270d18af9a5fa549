"""The command line of ztoolkit, and the end of a single process."""

import json
import os
import subprocess
import unittest

from host import SANITIZED, ZTOOLKIT, HostTest, environment, ztoolkit


class CommandLine(HostTest):
    def assert_refused(self, result, *texts):
        self.assertEqual(result.status, 2, result.err)
        self.assertEqual(result.out, "")
        for text in texts:
            self.assertIn(text, result.err)

    def test_warnings_of_libtorch_are_ours(self):
        text = 'local zt = require "zt"; zt.ones{2, 2, 2}:numpy_T()'
        result = self.run_script(text)
        self.assertEqual(result.status, 0)
        self.assertRegex(result.err, r"^\[warn\] LibTorch: The use of `x.T` on tensors of dimension other than 2")
        self.assertEqual(self.run_script(text, env={"ZT_LOG": "error"}).err, "")

    def test_help_and_version(self):
        for arguments in (["--help"], [], ["run", "--help"], ["plan", "--help"], ["plan", "-h"], ["plan", "--ranks", "4", "--help"],
                          ["info", "--help"], ["modules", "--help"], ["api", "--help"], ["ckpt", "--help"], ["ckpt", "ls", "--help"]):
            result = ztoolkit(*arguments)
            self.assertEqual((result.status, result.err), (0, ""), arguments)
            self.assertIn("ztoolkit", result.out)
        self.assertIn("OMP_NUM_THREADS", ztoolkit("--help").out)
        self.assertIn("--threads", ztoolkit("run", "--help").out)
        self.assertIn("--ranks-per-node", ztoolkit("plan", "--help").out)
        script = self.script('print("script", ...)')
        self.assertEqual(ztoolkit("plan", script, "--help").out.splitlines()[0], "script\t--help")
        self.assertRegex(ztoolkit("--version").out, r"^ztoolkit \d+\.\d+\.\d+ \(ABI \d+, build [0-9a-f]{16}\)\n$")

    def test_wrong_options_name_the_nearest(self):
        script = self.script("")
        self.assert_refused(ztoolkit("--hlep"), "unknown option '--hlep'", "--help")
        self.assert_refused(ztoolkit("run", "--thread", 2, script), "unknown option '--thread'", "did you mean '--threads'")
        self.assert_refused(ztoolkit("plan", "--rnaks", 2, script), "unknown option '--rnaks'", "did you mean '--ranks'")
        self.assert_refused(ztoolkit("info", "--jsno"), "did you mean '--json'")
        self.assert_refused(ztoolkit("modules", "x"), "modules takes no argument 'x'")

    def test_wrong_values(self):
        script = self.script("")
        for threads in ("0", "-1", "two", "1.5"):
            self.assert_refused(ztoolkit("run", "--threads", threads, script), "--threads")
        self.assert_refused(ztoolkit("run", "--threads"), "--threads")

    def test_scripts_that_are_not_there(self):
        self.assert_refused(ztoolkit("run"), "no script given")
        self.assert_refused(ztoolkit("plan"), "no script given")
        self.assert_refused(ztoolkit("plan", "--rank", 2), "no script given")
        self.assert_refused(ztoolkit("run", "nowhere.lua", cwd=self.folder), "no script 'nowhere.lua'", str(self.folder))
        self.assert_refused(ztoolkit("run", self.folder), "is a folder")

    def test_subcommands(self):
        self.assert_refused(ztoolkit("modul"), "unknown subcommand 'modul'", "did you mean 'modules'")
        self.assert_refused(ztoolkit("../api"), "unknown subcommand")
        self.assert_refused(ztoolkit(self.script("")), "ztoolkit run ")
        self.assertEqual(ztoolkit("api", "--help").status, 0)

    def test_a_folder_in_place_of_a_script(self):
        runs = self.folder / "runs"
        for name in ("runs/gpt/step_00000002", "exp", "hf", "empty"):
            (self.folder / name).mkdir(parents=True)
        for name in ("runs/gpt/options.json", "runs/gpt/step_00000002/checkpoint.h5", "exp/a.lua", "exp/b.lua", "hf/config.json",
                     "hf/model.safetensors"):
            (self.folder / name).touch()
        for folder, text in ((runs / "gpt", f"with a run: ztoolkit report {runs}/gpt makes a page of it, ztoolkit ckpt ls {runs}/gpt lists its checkpoints"),
                             (runs, f"with the runs gpt: ztoolkit ckpt ls {runs} lists their checkpoints"),
                             (runs / "gpt/step_00000002", f"with a checkpoint: ztoolkit ckpt show {runs}/gpt/step_00000002 prints"),
                             (self.folder / "exp", f"with the scripts a.lua, b.lua: to run one, write: ztoolkit run {self.folder}/exp/SCRIPT"),
                             (self.folder / "hf", f"with a model of Hugging Face: ztoolkit ckpt import {self.folder}/hf RUN"),
                             (self.folder / "empty", "without files that can be read: give a script")):
            self.assert_refused(ztoolkit(folder), f"'{folder}' is no subcommand. It is a folder {text}")
            self.assert_refused(ztoolkit("run", folder), f"'{folder}' is a folder {text}")

    def test_arg_is_what_plain_lua_gives(self):
        text = 'print(arg[0], #arg, arg[1], arg[2], ...)'
        result = self.run_script(text, "--dry", "b c")
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(result.out, f"{self.folder}/script.lua\t2\t--dry\tb c\t--dry\tb c\n")

    def test_dry(self):
        text = 'local zt = require "zt"; print(zt.world.dry, zt.world.rank, zt.world.size)'
        self.assertEqual(self.run_script(text).out, "false\t0\t1\n")
        self.assertEqual(self.run_script(text, options=["--dry"]).out, "true\t0\t1\n")

    def test_a_script_error_has_file_line_and_traceback(self):
        result = self.run_script("local function f(x)\n  return x.y.z\nend\nprint(1 + f({}))\n")
        self.assertEqual(result.status, 1)
        self.assertRegex(result.err, r"^ztoolkit: .*script\.lua:2: attempt to index field 'y'")
        self.assertIn("stack traceback", result.err)
        self.assertRegex(result.err, r"script\.lua:4:")

    def test_an_error_that_ends_like_one_of_another_rank(self):
        for text in ("no data for rank 1", "bad rank ", "rank 1 of 'dp", "rank 1 of 'dp' failed: "):
            result = self.run_script(f'error("{text}", 0)')
            self.assertEqual(result.status, 1, result.err)
            self.assertIn(text, result.err)

    def test_a_syntax_error_and_an_error_that_is_no_text(self):
        result = self.run_script("local x = = 1")
        self.assertEqual(result.status, 1)
        self.assertRegex(result.err, r"script\.lua:1: ")
        self.assertEqual(self.run_script("error({code = 7})").status, 1)
        self.assertEqual(self.run_script("error()").status, 1)

    @unittest.skipIf(SANITIZED, "sanitizers need more address space than the limits here")
    # Tensors are large, so that it is never LuaJIT that first finds no memory: its own error names nothing.
    def test_a_limit_of_memory_gives_an_error_of_the_script(self):
        script = self.script('''
            local zt = require "zt"
            for _, name in ipairs(require("zt.host").modules()) do require(name) end
            zt.write_file(arg[1], ("a few words in a line that comes again\\n"):rep(200))
            require("zt.data").tokenizer.train{input = arg[1], vocab = 300}
            local function fill() local kept = {}; for i = 1, 100 do kept[i] = zt.ones{25000000} end end
            print(pcall(fill))
            collectgarbage()
            fill()
        ''')
        for limit in (900000, 1200000, 1600000):
            command = f"ulimit -v {limit}; exec {ZTOOLKIT} run {script} {self.folder}/text"
            result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment({"OMP_NUM_THREADS": 1}), check=False)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stdout, r"^false\t.*script.lua:6: there is no memory for 95.4 MiB; .* more \(ulimit -v\)")
            self.assertRegex(result.stderr, r"^ztoolkit: .*script.lua:6: there is no memory for 95.4 MiB; .* more \(ulimit -v\)")

    def test_output_before_an_error_is_kept(self):
        result = self.run_script('io.write("half a line"); local f = io.open(arg[1], "w"); f:write("text"); error("x")',
                                 self.folder / "file")
        self.assertEqual((result.status, result.out), (1, "half a line"))
        self.assertEqual((self.folder / "file").read_text(), "text")

    def test_exit_closes_in_order(self):
        closing = 'local p = newproxy(true); getmetatable(p).__gc = function() print("closed") end; '
        for call, status in (("os.exit()", 0), ("os.exit(true)", 0), ("os.exit(false)", 1), ("os.exit(7)", 7), ("os.exit(3, true)", 3)):
            result = self.run_script(closing + 'io.write("x\\n"); pcall(function() ' + call + " end) print('not here')")
            self.assertEqual((result.status, result.out, result.err), (status, "x\nclosed\n", ""), call)
        result = self.run_script(closing + "coroutine.wrap(function() os.exit(5) end)()")
        self.assertEqual((result.status, result.out), (5, "closed\n"))
        self.assertEqual(self.run_script('os.exit("now")').status, 1)

    def test_a_save_that_fails_after_the_last_line(self):
        taken = self.folder / "run/step_00000003"  # a file with the name of the checkpoint's folder
        taken.parent.mkdir()
        save = f'require("zt.ckpt").save("{taken.parent}", {{note = 1}}, {{step = STEP}}) '
        for end in ("", "os.exit(0)", "os.exit(true)"):
            self.assertEqual(self.run_script(save.replace("STEP", "2") + end).status, 0)
            taken.write_text("")
            result = self.run_script(save.replace("STEP", "3") + end)
            self.assertEqual(result.status, 1, end)
            self.assertIn("step_00000003", result.err)
            self.assertFalse(list(taken.parent.glob("*.partial-*")))

    def test_info(self):
        result = ztoolkit("info", env={"OMP_NUM_THREADS": 3})
        self.assertEqual((result.status, result.err), (0, ""))
        for text in ("LibTorch", "LuaJIT", "CPU features", "CUDA code", "zt.example"):
            self.assertIn(text, result.out)
        info = json.loads(ztoolkit("info", "--json", env={"OMP_NUM_THREADS": 3}).out)
        self.assertEqual(info["environment"]["OMP_NUM_THREADS"], "3")
        self.assertEqual(info["modules"]["zt.example"]["build"], info["versions"]["build"])
        self.assertGreaterEqual(info["machine"]["cores"], 1)
        self.assertEqual(info["GEMM providers"]["float64"], "aten")

    def test_threads_of_a_rank(self):
        text = 'local zt = require "zt"; print(zt.num_threads())'
        self.assertEqual(self.run_script(text, env={"OMP_NUM_THREADS": 1}).out, "1\n")
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(self.run_script(text, env={"OMP_NUM_THREADS": None}).out, f"{cores}\n")
        result = self.run_script(text, options=["--threads", "4"], env={"OMP_NUM_THREADS": None})
        share = max(1, cores // 4)
        self.assertEqual(sorted(result.out.splitlines()), sorted([f"{share}", *(f"[{rank}] {share}" for rank in (1, 2, 3))]))


class ShortOfMemory(HostTest):
    @unittest.skipIf(SANITIZED, "a sanitizer reserves more address space than the limit")
    def test_lua_without_memory_is_an_error_with_words(self):
        script = self.script('local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(1000) .. i end')
        done = subprocess.run(["bash", "-c", f"ulimit -c 0 -v 1500000; exec {ZTOOLKIT} run {script}"], capture_output=True, text=True,
                              env=environment({}), timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("ztoolkit: not enough memory: Lua's own objects", done.stderr)
        self.assertNotIn("SIGABRT", done.stderr)


if __name__ == "__main__":
    unittest.main()
