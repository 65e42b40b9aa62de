package idemredis

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
)

// A key is a hash, and its expiry the end of its retention. The fields are
//
//	f  fingerprint of the first request
//	t  token of the claim, also when it is settled
//	a  attempt
//	l  end of the lease in microseconds of the server's clock
//	o  "" while the claim is held, else the idem.Outcome
//	p  payload, when Finished
//
// and v with a token behind it for each claim that was freed. A command that nobody waits for any more may still arrive, from
// a network that healed or a Redis that hung, and in any order: a Begin that comes behind its own freeing would claim the key
// for nobody. Without the other fields there is no record, and the rest goes after freedFor.
//
// In each script what Redis may refuse for want of memory is one HSET, before any other write: so a script does all of its work
// or none of it, without the flags of Redis 7, under which a full Redis would refuse replays as well. Only freeing goes on
// without its HSET.

// The states in the replies of beginScript are those of package idem, by number.
var beginScript = redis.NewScript(`
local CLAIMED, IN_FLIGHT, DONE, UNKNOWN, FINISHED = 1, 2, 3, 4, '1'
local token, fingerprint, lease, retention, reexecute = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local h = redis.call('HMGET', KEYS[1], 'f', 't', 'a', 'l', 'o', 'v' .. token)
local first, holder, attempt, held = h[1], h[2], tonumber(h[3]), h[5] == ''
local left = (tonumber(h[4]) or 0) - now

if h[6] then
	return redis.error_reply('ERR the claim was freed before it was made')
end
if first then
	if held and holder == token then
		-- A resent call: the claim stands, also if it cannot be renewed.
		local renewed = redis.pcall('HSET', KEYS[1], 'l', string.format('%.0f', now + lease))
		if type(renewed) == 'table' and renewed.err then
			return redis.error_reply('ERR the claim stands, but its lease was not renewed')
		end
		redis.call('PEXPIRE', KEYS[1], retention)
		return {CLAIMED, first, attempt}
	end
	if held and left > 0 then
		return {IN_FLIGHT, first, left}
	end
	if not held and h[5] == FINISHED then
		return {DONE, first, redis.call('HGET', KEYS[1], 'p')}
	end
	if not reexecute or first ~= fingerprint then
		return {UNKNOWN, first, 0}
	end
end

attempt = (attempt or 0) + 1
redis.call('HSET', KEYS[1], 'f', fingerprint, 't', token, 'a', attempt, 'l', string.format('%.0f', now + lease), 'o', '')
redis.call('PEXPIRE', KEYS[1], retention)
return {CLAIMED, fingerprint, attempt}
`)

// The other scripts reply with one of these words.
const (
	ok      = "ok"
	lost    = "lost"
	settled = "settled"
)

var extendScript = redis.NewScript(`
local token, lease, ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local h = redis.call('HMGET', KEYS[1], 't', 'o')
if h[1] ~= token or h[2] ~= '' then
	return 'lost'
end
local t = redis.call('TIME')
redis.call('HSET', KEYS[1], 'l', string.format('%.0f', t[1] * 1000000 + t[2] + lease))
if redis.call('PTTL', KEYS[1]) < ms then
	redis.call('PEXPIRE', KEYS[1], ms)
end
return 'ok'
`)

var settleScript = redis.NewScript(`
local FINISHED = '1'
local token, outcome, payload, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local h = redis.call('HMGET', KEYS[1], 't', 'o')
if h[1] ~= token then
	return 'lost'
end
if h[2] ~= '' then
	if h[2] == outcome and (outcome ~= FINISHED or redis.call('HGET', KEYS[1], 'p') == payload) then
		return 'ok'
	end
	return 'settled'
end
if outcome == FINISHED then
	redis.call('HSET', KEYS[1], 'o', outcome, 'p', payload)
else
	redis.call('HSET', KEYS[1], 'o', outcome)
end
redis.call('PEXPIRE', KEYS[1], retention)
return 'ok'
`)

// freedFor is longer than TCP goes on sending what is not acknowledged, a quarter of an hour.
const freedFor = 20 * time.Minute

var freeScript = redis.NewScript(`
local token, freedFor = ARGV[1], ARGV[2]
local h = redis.call('HMGET', KEYS[1], 't', 'o')
local ours = h[1] == token
if ours and h[2] ~= '' then
	return 'settled'
end
if ours then
	redis.call('HDEL', KEYS[1], 'f', 't', 'a', 'l', 'o')
end
-- Without memory there is no room for a late claim either.
redis.pcall('HSET', KEYS[1], 'v' .. token, '')
if ours or not h[1] then
	redis.call('PEXPIRE', KEYS[1], freedFor)
end
return ours and 'ok' or 'lost'
`)

var errReply = errors.New("idemredis: the key holds something else, or this is no Redis")

// record reads a reply of beginScript.
func record(reply any) (idem.Record, error) {
	fields, _ := reply.([]any)
	if len(fields) != 3 {
		return idem.Record{}, errReply
	}
	state, _ := fields[0].(int64)
	first, _ := fields[1].(string)
	n, _ := fields[2].(int64)
	payload, whole := fields[2].(string)
	r := idem.Record{State: idem.State(state)}
	if len(first) != len(r.Fingerprint) || whole != (r.State == idem.Done) {
		return idem.Record{}, errReply
	}
	copy(r.Fingerprint[:], first)
	switch r.State {
	case idem.Claimed:
		r.Attempt = int(n)
	case idem.InFlight:
		r.LeaseLeft = time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
	case idem.Done:
		r.Payload, r.Retained = []byte(payload), true
	}
	return r, nil
}

// verdict reads a reply of the other scripts.
func verdict(reply any, err error) error {
	if err != nil {
		return err
	}
	switch reply {
	case ok:
		return nil
	case lost:
		return idem.ErrLost
	case settled:
		return idem.ErrSettled
	}
	return fmt.Errorf("%w: %v", errReply, reply)
}

// outOfMemory tells Redis's refusal of a write, whose wording differs between versions, from other errors.
func outOfMemory(err error) bool {
	return err != nil && strings.Contains(err.Error(), "OOM command not allowed")
}
