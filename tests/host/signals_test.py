"""Ctrl-C and termination."""

import signal
import subprocess
import time
import unittest

from host import AT_ONCE, HostTest, Running

LOOP = 'print("started"); while true do end'


class Signals(HostTest):
    def start(self, text, *options, ranks=0):
        run = Running("run", *options, self.script(text), ranks=ranks)
        run.wait_for("started")
        return run

    def test_interrupt(self):
        for options in ([], ["--threads", "2"]):
            run = self.start(LOOP, *options)
            run.signal(signal.SIGINT)
            result = run.finish()
            self.assertEqual((result.status, result.err), (130, "interrupted\n"), options)
            self.assertLess(result.seconds, AT_ONCE)

    def test_terminate(self):
        run = self.start(LOOP)
        run.signal(signal.SIGTERM)
        result = run.finish()
        self.assertEqual((result.status, result.err), (143, ""))

    def test_interrupt_while_waiting_for_a_child(self):
        run = self.start('print("started"); io.popen("sleep 1000.5"):read("*a")')
        time.sleep(0.3)
        run.signal_group(signal.SIGINT)
        self.assertEqual(run.finish().status, 130)
        listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
        self.assertNotIn("sleep 1000.5", listing)

    def test_interrupt_under_mpirun(self):
        run = self.start(LOOP, ranks=2)
        run.signal(signal.SIGINT)
        result = run.finish()
        self.assertNotEqual(result.status, 0)
        self.assertLess(result.seconds, AT_ONCE)
        listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
        self.assertNotIn(str(self.folder), listing)

    def test_a_closed_pipe_ends_the_run(self):
        run = self.start('print("started"); while true do print(("x"):rep(1000)) end')
        run.process.stdout.close()
        self.assertEqual(run.process.wait(timeout=10), -signal.SIGPIPE)
        run.process.stderr.close()


if __name__ == "__main__":
    unittest.main()
