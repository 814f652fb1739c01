-- A benchmark with some of everything. Nothing in it depends on addresses: no table has a table or a function as key.
local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end

local t = {}
for i = 1, 3000 do t[i] = (i * 7919) % 10007 end
table.sort(t)
table.sort(t, function(a, b) return a > b end)
local sum = 0
for i = 1, #t do sum = sum + t[i] * i % 7 end
for _ = 1, 40 do table.insert(t, 1, table.remove(t)) end

local parts = {}
for i = 1, 1000 do parts[#parts + 1] = string.format("%d:%s:%5.2f", i, ("x"):rep(i % 10), i / 3) end
local text = table.concat(parts, ",")
local numbers = 0
for _ in text:gmatch("%d+") do numbers = numbers + 1 end
local replaced = select(2, text:gsub("(x+):", "<%1>")) + #text:upper():reverse() + (text:find("999", 1, true))

local caught = 0
for i = 1, 2000 do
  local ok = pcall(error, { code = i })
  if not ok then caught = caught + 1 end
end
local function deep(n)
  if n == 0 then error("deep") end
  return deep(n - 1) + 1
end
local _, handled = xpcall(deep, function(message) return message:match("deep") end, 100)

local Point = {}
Point.__index = Point
Point.__add = function(a, b) return setmetatable({ x = a.x + b.x }, Point) end
Point.__eq = function(a, b) return a.x == b.x end
Point.__lt = function(a, b) return a.x < b.x end
Point.__concat = function(a, b) return tostring(a.x) .. b end
Point.__close = function(p) caught = caught + p.x end
local p = setmetatable({ x = 0 }, Point)
for i = 1, 500 do p = p + setmetatable({ x = i }, Point) end
do local closing <close> = p end

local function generate(n)
  return coroutine.wrap(function()
    for i = 1, n do coroutine.yield(i) end
  end)
end
local yielded = 0
for i in generate(1000) do yielded = yielded + i end
local failing = coroutine.create(function() coroutine.yield(1); error("in a coroutine") end)
coroutine.resume(failing)
local _, message = coroutine.resume(failing)
local across = coroutine.wrap(function() return pcall(function() coroutine.yield(1); error("across") end) end)
across()
across()

local chunk = assert(load("local a, b = ... ; local s = 0 ; for i = a, b do s = s + (i ~ 5) // 3 end return s"))
collectgarbage()
print(fib(18), sum, numbers, replaced, caught, handled, yielded, message, chunk(1, 1000), p .. "!", p == p, #utf8.char(228, 8364))
