package idemredis

import "github.com/redis/go-redis/v9"

// In each script what Redis may refuse for want of memory is one write, before
// any other: so a script does all of its work or none of it, without the flags
// of Redis 7, under which a full Redis would refuse replays as well. Only freeing
// what did not take over goes on without its write.

// parse reads the key, if there is one.
const parse = `
local TOLD = 999999999999999
local key, token = redis.call('GET', KEYS[1]), ARGV[1]
local state, first, holder, attempt, mark, freed, payload = '', '', '', 0, 0, '', ''
if key then
	local n = tonumber(string.sub(key, 76, 77))
	state = string.match(key, '^[cduf]')
	attempt, mark = tonumber(string.sub(key, 50, 59)), tonumber(string.sub(key, 60, 75))
	if not (state and attempt and mark and n and #key >= 77 + 16 * n) then
		return redis.error_reply('ERR the key holds something else')
	end
	first, holder = string.sub(key, 2, 33), string.sub(key, 34, 49)
	freed, payload = string.sub(key, 78, 77 + 16 * n), string.sub(key, 78 + 16 * n)
end
`

// freeing has what scripts need that know of freed claims.
const freeing = `
local function was_freed()
	for i = 1, #freed, 16 do
		if string.sub(freed, i, i + 15) == token then
			return true
		end
	end
	return false
end

local function join(state, first, holder, attempt, mark, freed, payload)
	return state .. first .. holder .. string.format('%010d%016.0f%02d', attempt, mark, #freed / 16) .. freed .. payload
end
`

// The states in the replies of beginScript are those of package idem, by
// number.
var beginScript = redis.NewScript(parse + freeing + `
local CLAIMED, IN_FLIGHT, DONE, UNKNOWN = 1, 2, 3, 4
local fingerprint, lease, retention, reexecute = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'

if was_freed() then
	return redis.error_reply('ERR the claim was freed before it was made')
end
if state == 'c' and holder == token and mark ~= TOLD then
	-- A resent call: the claim stands, also if it cannot be renewed.
	local renewed = redis.pcall('SETRANGE', KEYS[1], 59, string.format('%016.0f', retention - lease))
	if type(renewed) == 'table' and renewed.err then
		return redis.error_reply('ERR the claim stands, but its lease was not renewed')
	end
	redis.call('PEXPIRE', KEYS[1], retention)
	return {CLAIMED, first, attempt}
end
if state == 'c' then
	local left = redis.call('PTTL', KEYS[1]) - mark
	if left > 0 then
		return {IN_FLIGHT, first, left}
	end
end
if state == 'd' then
	return {DONE, first, payload}
end
if state == 'c' or state == 'u' then
	if not reexecute or first ~= fingerprint then
		if state == 'c' and mark ~= TOLD then
			redis.call('SETRANGE', KEYS[1], 59, string.format('%016.0f', TOLD))
		end
		return {UNKNOWN, first, 0}
	end
else
	attempt = 0
end
redis.call('SET', KEYS[1], join('c', fingerprint, token, attempt + 1, retention - lease, freed, ''), 'PX', retention)
return {CLAIMED, fingerprint, attempt + 1}
`)

// The other scripts reply with ok, lost or settled.

var extendScript = redis.NewScript(parse + `
local lease = tonumber(ARGV[2])
if state ~= 'c' or holder ~= token or mark == TOLD then
	return 'lost'
end
local left = redis.call('PTTL', KEYS[1])
redis.call('SETRANGE', KEYS[1], 59, string.format('%016.0f', math.max(left - lease, 0)))
if left < lease then
	redis.call('PEXPIRE', KEYS[1], lease)
end
return 'ok'
`)

// settleScript is on the path of every create, and reads no more of the key
// than it needs. A claimed key has no payload, so the answer goes behind it.
var settleScript = redis.NewScript(`
local key, token, outcome, answer, retention = redis.call('GET', KEYS[1]), ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local state = key and string.sub(key, 1, 1)
if not key or state == 'f' or string.sub(key, 34, 49) ~= token then
	return 'lost'
end
if state == 'c' then
	redis.call('SET', KEYS[1], outcome .. string.sub(key, 2) .. answer, 'PX', retention)
	return 'ok'
end
local payload = string.sub(key, 78 + 16 * tonumber(string.sub(key, 76, 77)))
return state == outcome and payload == answer and 'ok' or 'settled'
`)

var freeScript = redis.NewScript(parse + freeing + `
local freed_for, most, retention = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local nobody = string.rep('\0', 16)
local held = state == 'c' or state == 'd' or state == 'u'
local ours = held and holder == token
if ours and state ~= 'c' then
	return state == 'u' and attempt > 1 and 'ok' or 'settled'
end
if not was_freed() then
	freed = string.sub(freed .. token, -16 * most)
end
if ours and attempt > 1 then
	redis.call('SET', KEYS[1], join('u', first, holder, attempt, mark, freed, ''), 'PX', retention)
	return 'ok'
end
-- Without memory there is no room for a late claim either.
if ours or not held then
	local new = join('f', nobody .. nobody, nobody, 0, 0, freed, '')
	local set = redis.pcall('SET', KEYS[1], new, 'PX', freed_for)
	if ours and set.err then
		redis.call('DEL', KEYS[1])
	end
elseif state ~= 'd' then
	-- Another has the key. What is done is nobody's to claim again.
	local new = join(state, first, holder, attempt, mark, freed, payload)
	redis.pcall('SET', KEYS[1], new, 'PX', redis.call('PTTL', KEYS[1]))
end
return ours and 'ok' or 'lost'
`)
