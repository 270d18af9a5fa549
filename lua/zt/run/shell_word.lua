--- Returns a word as the shell reads it: in quotes, unless it is plain.
return function(word)
  return word:find "^[%w%-_./=:,@%%+]+$" and word or "'" .. word:gsub("'", "'\\''") .. "'"
end
