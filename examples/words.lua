-- A small script with some of everything: for `cargo xtask demo`.

local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end

local words, count = {}, {}
for i = 1, 5000 do
  words[i] = string.format("w%03d", (i * 7919) % 613)
end
for word in table.concat(words, " "):gmatch("%a%d+") do
  count[word] = (count[word] or 0) + 1
end
local names = {}
for word in pairs(count) do names[#names + 1] = word end
table.sort(names, function(a, b)
  if count[a] ~= count[b] then return count[a] > count[b] end
  return a < b
end)

local caught = 0
for _ = 1, 100 do
  if not pcall(error, "thrown") then caught = caught + 1 end
end

local squares = coroutine.wrap(function()
  for i = 1, 100 do coroutine.yield(i * i) end
end)
local sum = 0
for _ = 1, 100 do sum = sum + squares() end

print("words", #names, "most frequent", names[1], count[names[1]])
print("fib(18)", fib(18), "errors caught", caught, "sum of squares", sum)
