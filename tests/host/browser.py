"""Opens pages in a headless Chromium, for report_test.py."""

import dataclasses
import html
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import zlib

CHROMIUM = shutil.which("chromium")


def _chromium(url, *options):
    with tempfile.TemporaryDirectory(prefix="zt-chromium-") as profile:
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   f"--user-data-dir={profile}", *options, url]
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=100,
                              check=True).stdout.decode()


def _url(page, fragment):
    return pathlib.Path(page).as_uri() + ("#" + fragment if fragment else "")


def document(page, fragment="", size=(1000, 900), seconds=2):
    """Returns the elements of a page as HTML after `seconds` of its own clock, which does not wait."""
    return _chromium(_url(page, fragment), f"--window-size={size[0]},{size[1]}", f"--virtual-time-budget={1000 * seconds}", "--dump-dom")


def driven(page, script):
    """Writes a copy of a page that notes errors, and runs a script of the test after the page's own. The script may use `notes`, an
    object which noted() returns."""
    text = pathlib.Path(page).read_text()
    begin = '<script>var notes = {errors: []}; onerror = message => { notes.errors.push(message); };</script>'
    end = f"<script>{script}; document.body.dataset.notes = JSON.stringify(notes);</script></body>"
    copy = pathlib.Path(page).with_name("driven.html")
    copy.write_text(text.replace("<head>", "<head>" + begin, 1).replace("</body>", end))
    return copy


def notes_of(text):
    """Returns the JSON text of `notes` in a document."""
    return html.unescape(re.search(r'data-notes="([^"]*)"', text)[1])


@dataclasses.dataclass
class Picture:
    width: int
    height: int
    rows: list  # bytes, three per pixel

    def pixel(self, x, y):
        return tuple(self.rows[y][3 * x:3 * x + 3])

    def count(self, color, box):
        """Returns how many pixels of a box (left, top, right, bottom) have a color "#rrggbb" within 8 levels."""
        wanted = bytes.fromhex(color[1:])
        left, top, right, bottom = box
        return sum(all(abs(value - goal) <= 8 for value, goal in zip(self.pixel(x, y), wanted))
                   for y in range(top, bottom) for x in range(left, right))


def _unfiltered(data, width, height, channels):
    """Returns the rows of a PNG of 8 bits per channel (https://www.w3.org/TR/png/#9Filters)."""
    size, rows, above = width * channels, [], bytearray(width * channels)
    for y in range(height):
        kind, row = data[y * (size + 1)], bytearray(data[y * (size + 1) + 1:(y + 1) * (size + 1)])
        for i in range(size if kind else 0):
            left, up, corner = (row[i - channels], above[i], above[i - channels]) if i >= channels else (0, above[i], 0)
            if kind == 4:
                nearest = min((abs(up - corner), 0, left), (abs(left - corner), 1, up), (abs(left + up - 2 * corner), 2, corner))[2]
            row[i] = (row[i] + (left, up, (left + up) // 2, nearest if kind == 4 else 0)[kind - 1]) & 255
        rows.append(row)
        above = row
    return rows


def screenshot(page, fragment="", size=(1000, 900), options=()):
    """Returns what a page looks like."""
    with tempfile.TemporaryDirectory(prefix="zt-screenshot-") as folder:
        file = pathlib.Path(folder) / "page.png"
        _chromium(_url(page, fragment), f"--window-size={size[0]},{size[1]}", "--virtual-time-budget=2000", f"--screenshot={file}", *options)
        content, at, data = file.read_bytes(), 8, b""
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at:at + 8])
        part = content[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", part)
        data += part if kind == b"IDAT" else b""
        at += length + 12
    assert depth == 8 and color in (2, 6) and not interlaced, "Chromium writes another kind of PNG now: teach it to browser.py"
    channels = 3 if color == 2 else 4
    rows = _unfiltered(zlib.decompress(data), width, height, channels)
    return Picture(width, height, rows if channels == 3 else [b"".join(row[i:i + 3] for i in range(0, len(row), 4)) for row in rows])
