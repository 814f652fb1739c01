-- Calls, tables, strings, sorting, errors; the argument says how many rounds.
local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end

local result = 0
for round = 1, tonumber(arg[1]) do
  local t = {}
  for i = 1, 2000 do t[i] = (i * 7919 + round) % 10007 end
  table.sort(t)
  local parts = {}
  for i = 1, 1000 do parts[#parts + 1] = string.format("%d:%s", t[i], ("x"):rep(i % 10)) end
  local text, numbers = table.concat(parts, ","), 0
  for word in text:gmatch("%d+") do numbers = numbers + #word end
  for i = 1, 20 do pcall(error, i) end
  result = result + fib(16) + numbers
end
print(result)
