package ratelimitredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// takeScript is ratelimit.GCRA for several buckets: all of them are charged, or
// none. A key holds the tat of a bucket, by the server's clock in microseconds.
//
// ARGV has two numbers for each key, what a full burst takes to come back and what
// the take costs; the reply has two as well, the debt that is left and the wait. No
// sum exceeds 2^53, up to which Lua's numbers are exact.
var takeScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local stored = redis.call('MGET', unpack(KEYS))
local old, new, waits, denied = {}, {}, {}, false

for i, key in ipairs(KEYS) do
	local full, charge = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
	if not old[key] then
		old[key] = tonumber(stored[i]) or 0
		new[key] = old[key]
	end
	-- A clock that stepped back, or a plan that was larger, counts as a full burst.
	local debt = math.min(math.max(new[key] - now, 0), full)
	waits[i] = 0
	if charge > full - debt then
		waits[i] = charge - (full - debt)
		denied = true
	elseif charge > 0 then
		new[key] = now + debt + charge
	end
end

local reply = {}
for i, key in ipairs(KEYS) do
	local full, tat, changed = tonumber(ARGV[2 * i - 1]), new[key], new[key] ~= old[key]
	if denied then
		-- Nothing is charged. What lies beyond a full burst is cut off for good, or
		-- the wait would not be true.
		tat, changed = old[key], false
		if waits[i] > 0 and tat > now + full then
			tat, changed = now + full, true
		end
	end
	local debt = math.min(math.max(tat - now, 0), full)
	if changed then
		-- The server's expiries see milliseconds only: one more, so that none is early.
		redis.call('SET', key, string.format('%.0f', tat), 'PX', string.format('%.0f', math.ceil(debt / 1000) + 1))
	end
	reply[2 * i - 1], reply[2 * i] = debt, waits[i]
end
return reply
`)

// counters is the Store as far as Redis answers.
type counters struct {
	client  redis.UniversalClient
	prefix  string
	spread  bool
	denials *denials
}

func (c *counters) Take(ctx context.Context, takes []ratelimit.Take) (ratelimit.Decision, error) {
	var states [ratelimit.MaxTakes]ratelimit.State
	if len(takes) == 0 {
		return ratelimit.Decide(takes, states), nil
	}
	args := make([]any, 0, 2*len(takes))
	for i := range takes {
		p := paceOf(&takes[i])
		args = append(args, p.full, p.charge(takes[i].Cost))
	}
	reply, err := takeScript.Run(ctx, c.client, c.keys(takes), args...).Int64Slice()
	if err != nil {
		return ratelimit.Decision{}, fmt.Errorf("ratelimitredis: %w", err)
	}
	if len(reply) != len(args) {
		return ratelimit.Decision{}, fmt.Errorf("ratelimitredis: got %d numbers for %d takes", len(reply), len(takes))
	}
	for i := range takes {
		states[i] = paceOf(&takes[i]).state(duration(reply[2*i]))
		states[i].Wait = duration(reply[2*i+1])
	}
	d := ratelimit.Decide(takes, states)
	if !d.Allowed {
		c.denials.remember(takes, states)
	}
	return d, nil
}

// pace is a limit in microseconds.
type pace struct{ burst, interval, full int64 }

// maxFull and the time since 1970 together stay below 2^53.
const maxFull = 7e15

func paceOf(t *ratelimit.Take) pace {
	l := t.Policy.Limit
	p := pace{burst: l.Burst, interval: int64((l.Interval()-1)/time.Microsecond) + 1}
	if p.burst == 0 {
		p.burst = l.Count
	}
	// A valid limit takes at most 2^62 ns to fill, and rounding no more than doubles
	// that. Where maxFull cuts it off, 221 years, it is stricter than it was asked to
	// be, as everywhere.
	p.full = min(p.interval*p.burst, maxFull)
	return p
}

func (p pace) charge(cost int64) int64 { return min(p.interval*cost, p.full) }

// state is that of a bucket which is full again after debt.
func (p pace) state(debt time.Duration) ratelimit.State {
	if debt <= 0 {
		return ratelimit.State{Remaining: p.burst}
	}
	left := time.Duration(p.full)*time.Microsecond - debt
	return ratelimit.State{Remaining: int64(left / (time.Duration(p.interval) * time.Microsecond)), Reset: debt}
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
