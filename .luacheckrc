std = "luajit"
max_line_length = 130
files["tests/lua"] = { ignore = { "212" } } -- unused arguments of test methods
