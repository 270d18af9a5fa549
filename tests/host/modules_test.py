"""The messages of `require` and `ztoolkit modules` for modules that cannot be loaded."""

import json
import unittest

from host import BUILD, HostTest, ztoolkit

# The folder of the bad modules, then Lua's own path.
PATH = {"LUA_CPATH": f"{BUILD}/tests/host/modules/?.so;;"}
BUILD_ID = json.loads(ztoolkit("info", "--json").out)["versions"]["build"]

# By module: texts that its message must contain.
REFUSED = {
    "wrong_abi": ["SDK ABI 42", "this ztoolkit has ABI 1", "rebuild"],
    "wrong_build": ["0123456789abcdef", BUILD_ID],
    "throws": ["the device 'npu0' is on fire"],
    "no_entry": ["has no function luaopen_zt_no_entry", "ZT_LUA_MODULE(no_entry)"],
    "undefined_symbol": ["zt::gone_in_this_version(int)", "Build it again"],
    "missing_library": ["libnot_installed.so", "is missing", "LD_LIBRARY_PATH"],
}


class Modules(HostTest):
    def require(self, name):
        return self.run_script(f'local m = require "zt.{name}"; print(type(m))', env=PATH)

    def test_each_reason_is_readable(self):
        for name, texts in REFUSED.items():
            result = self.require(name)
            self.assertEqual((result.status, result.out), (1, ""), name)
            for text in [f"zt.{name}", *texts]:
                self.assertIn(text, result.err, name)
            self.assertIn("script.lua:1:", result.err, name)

    def test_require_can_be_caught_and_tried_again(self):
        result = self.run_script('print(pcall(require, "zt.throws"), (pcall(require, "zt.throws"))); print(type(require "zt.misuses"))', env=PATH)
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(result.out, "false\tfalse\ntable\n")

    def test_a_missing_nccl_is_missed_each_time(self):
        result = self.run_script('''
            local comm = require "zt.comm"
            for _ = 1, 2 do print(select(2, pcall(comm.mesh, {dp = 1, backend = "nccl"}))) end
        ''', env={"ZT_NCCL": "/no/libnccl.so"})
        self.assertEqual(result.status, 0, result.err)
        messages = [line for line in result.out.splitlines() if "nccl" in line]
        self.assertEqual(len(messages), 2, result.out)
        self.assertEqual(messages[0], messages[1])

    def test_a_module_that_does_not_exist(self):
        result = self.run_script('require "zt.exampel"')
        self.assertEqual(result.status, 1)
        self.assertIn("script.lua:1: there is no module 'zt.exampel': did you mean 'zt.example'?\n", result.err)
        result = self.run_script('print(pcall(require, "optim")); print(pcall(require, "no.where"))', env=PATH)
        lines = result.out.splitlines()
        self.assertEqual(len(lines), 2, result.out)
        self.assertIn("there is no module 'optim': did you mean 'zt.optim'?", lines[0])
        self.assertIn("there is no module 'no.where': no folder of package.path has no/where.lua, and none of package.cpath has "
                      "no/where.so", lines[1])

    def test_list(self):
        result = ztoolkit("modules", env=PATH)
        self.assertEqual((result.status, result.err), (0, ""))
        self.assertRegex(result.out, rf"zt\.example +ABI \d+  build {BUILD_ID} +\d+ functions")
        for name, texts in REFUSED.items():
            self.assertRegex(result.out, rf"zt\.{name} +cannot be loaded: ")
            for text in texts:
                self.assertIn(text, result.out)

    def test_info_has_the_reasons_too(self):
        modules = json.loads(ztoolkit("info", "--json", env=PATH).out)["modules"]
        self.assertIn("on fire", modules["zt.throws"]["error"])
        self.assertEqual(modules["zt.misuses"]["functions"], 2)

    def test_errors_of_cpp_code_have_the_scripts_file_and_line(self):
        result = self.run_script('local m = require "zt.misuses"\n\nm.misuse()\n', env=PATH)
        self.assertEqual(result.status, 1)
        self.assertRegex(result.err, r"script\.lua:3: there is no axis 'dq': did you mean 'dp'\?")
        # An exception that is not a std::exception has no text, and must not end the process.
        result = self.run_script('local m = require "zt.misuses"; print(pcall(m.foreign))', env=PATH)
        self.assertEqual((result.status, result.out[:6]), (0, "false\t"))


if __name__ == "__main__":
    unittest.main()
