package idemredis_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/optiontest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// calls are the methods, with arguments that fit c.
func calls(s idem.Store, c idem.Claim) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Begin":  func(ctx context.Context) error { _, err := s.Begin(ctx, c); return err },
		"Extend": func(ctx context.Context) error { return s.Extend(ctx, c.Key, c.Token, c.Lease) },
		"Settle": func(ctx context.Context) error { return s.Settle(ctx, c.Key, c.Token, finished("answer")) },
		"free":   func(ctx context.Context) error { return s.Settle(ctx, c.Key, c.Token, freed) },
	}
}

func isRefusal(err error) bool {
	return errors.Is(err, idem.ErrLost) || errors.Is(err, idem.ErrFull) || errors.Is(err, idem.ErrSettled)
}

func TestNewAsksNothing(t *testing.T) {
	client := redistest.Connect(t, &redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		t.Error("the client was used")
		return nil, errors.New("not to be used")
	}})
	store := idemredis.New(client, idemredis.Options{})
	c := aClaim("k")
	for name, call := range map[string]func() error{
		"a lease of 0": func() error { c := c; c.Lease = 0; _, err := store.Begin(t.Context(), c); return err },
		"a retention below the lease": func() error {
			c := c
			c.Retention = c.Lease - 1
			_, err := store.Begin(t.Context(), c)
			return err
		},
		"an extension by nothing": func() error { return store.Extend(t.Context(), c.Key, c.Token, 0) },
		"an outcome that is not there": func() error {
			return store.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: 9, Retention: 1})
		},
		"an answer for no time": func() error {
			return store.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: idem.OutcomeDone})
		},
	} {
		if err := call(); err == nil || isRefusal(err) {
			t.Errorf("%s: got %v, want an error that is no refusal", name, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("New without a client does not panic")
		}
	}()
	idemredis.New(nil, idemredis.Options{})
}

// A Redis that refuses connections, or takes them and does not answer, is an
// error and no refusal, and the context is heeded whatever the client does.
func TestAway(t *testing.T) {
	t.Parallel()
	hung, err := net.Listen("tcp", "127.0.0.1:0") // and nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	for name, o := range map[string]*redis.Options{
		"a client that heeds no deadlines": {},
		"a client that heeds deadlines":    {ContextTimeoutEnabled: true},
		"a client that connects with TLS":  {ContextTimeoutEnabled: true, TLSConfig: &tls.Config{}},
	} {
		// Each call would take an hour, if it did not heed its context.
		o.ReadTimeout, o.WriteTimeout, o.DialTimeout = time.Hour, time.Hour, time.Hour
		o.Addr = "127.0.0.1:1"
		away := idemredis.New(redistest.Connect(t, o), idemredis.Options{})
		slow := *o
		slow.Addr = hung.Addr().String()
		hangs := idemredis.New(redistest.Connect(t, &slow), idemredis.Options{})
		for method, call := range calls(away, aClaim("k")) {
			if err := call(t.Context()); err == nil || isRefusal(err) || !strings.HasPrefix(err.Error(), "idemredis: ") {
				t.Errorf("%s, %s, refused: got %v, want an error of idemredis that is no refusal", name, method, err)
			}
		}
		for method, call := range calls(hangs, aClaim("k")) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err := call(ctx)
			cancel()
			if err == nil || isRefusal(err) {
				t.Errorf("%s, %s, hung: got %v, want an error that is no refusal", name, method, err)
			}
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %s, canceled: got %v, want context.Canceled", name, method, err)
			}
		}
	}
}

// Where the client heeds deadlines, a command with one costs no goroutine. That it
// does is known by its options and its type; with TLS it may connect for longer.
func TestGoroutineOfCommands(t *testing.T) {
	for _, row := range []struct {
		timeouts, tls bool
		heeds         bool
	}{{false, false, false}, {false, true, false}, {true, true, false}, {true, false, true}} {
		var config *tls.Config
		if row.tls {
			config = new(tls.Config)
		}
		single := func() redis.UniversalClient {
			return redistest.Connect(t, &redis.Options{ContextTimeoutEnabled: row.timeouts, TLSConfig: config})
		}
		cluster := redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: row.timeouts, TLSConfig: config})
		t.Cleanup(func() { cluster.Close() })
		for _, c := range []struct {
			client redis.UniversalClient
			hides  bool // what it is
		}{{single(), false}, {cluster, false}, {single(), true}} {
			var direct, elsewhere atomic.Int64 // commands from the goroutine of the call, and from others
			c.client.AddHook(hook{single: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if bytes.Contains(debug.Stack(), []byte(".TestGoroutineOfCommands(")) {
					direct.Add(1)
				} else {
					elsewhere.Add(1)
				}
				return next(ctx, cmd)
			}})
			unsent(c.client)
			client := idemredis.Client(c.client)
			if c.hides {
				client = struct{ idemredis.Client }{c.client}
			}
			bounded, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for _, ctx := range []context.Context{t.Context(), bounded} {
				for method, call := range calls(idemredis.New(client, idemredis.Options{}), aClaim("k")) {
					direct.Store(0)
					elsewhere.Store(0)
					_ = call(ctx)
					want := row.heeds && !c.hides && ctx == bounded
					if (direct.Load() > 0) != want || (elsewhere.Load() > 0) == want {
						t.Errorf("%T, hidden %t, %+v, %s, with a deadline %t: %d commands from the goroutine of the call, %d from others",
							c.client, c.hides, row, method, ctx == bounded, direct.Load(), elsewhere.Load())
					}
				}
			}
		}
	}
}

// Keys outlive the program that made them, and two versions may run beside each
// other. Another layout needs other letters for its states, so that each
// version refuses the keys of the other. A key takes about 400 bytes.
func TestLayoutIsFrozen(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	prefix := redistest.OwnPrefix(t, client)
	store := idemredis.New(client, idemredis.Options{Prefix: prefix})
	c := idem.Claim{
		Key: idem.NewKey("organization", "key"), Fingerprint: [32]byte([]byte("fingerprint of thirty-two bytes.")),
		Lease: 15 * time.Second, Retention: 24 * time.Hour,
	}
	copy(c.Token[:], "0123456789abcdef")
	rest := "fingerprint of thirty-two bytes.0123456789abcdef" + "0000000001" + "0000000086385000" + "00"
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { _, err := store.Begin(t.Context(), c); return err }, "c" + rest},
		{func() error { return store.Settle(t.Context(), c.Key, c.Token, finished("answer")) }, "d" + rest + "answer"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		names := redistest.KeysOf(t, client, prefix)
		if got := client.Get(t.Context(), names[0]).Val(); len(names) != 1 || got != step.want {
			t.Errorf("the keys %q hold %q, want %q", names, got, step.want)
		}
		if want := prefix + "81673e8e7673db71489da9fc993cff6a54c58dfb410d391af7c719f6875ea219"; names[0] != want {
			t.Errorf("the key is %q, want %q", names[0], want)
		}
		if n := client.MemoryUsage(t.Context(), names[0]).Val(); n < 200 || n > 500 {
			t.Errorf("the key takes %d bytes, want about 400", n)
		}
	}
}

// Somebody else's key is an error, and left alone.
func TestForeignKey(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	prefix := redistest.OwnPrefix(t, client)
	store := idemredis.New(client, idemredis.Options{Prefix: prefix})
	c := aClaim("k")
	mustBegin(t, store, c, idem.Claimed)
	name := redistest.KeysOf(t, client, prefix)[0]
	claimed := client.Get(t.Context(), name).Val()
	text := func(value string) func() error {
		return func() error { return client.Set(t.Context(), name, value, 0).Err() }
	}
	for what, write := range map[string]func() error{
		"text":                         text("text"),
		"nothing":                      text(""),
		"a hash":                       func() error { return client.HSet(t.Context(), name, "f", "short", "o", "").Err() },
		"half a claim":                 text(claimed[:76]),
		"a claim without an attempt":   text(claimed[:50] + "xxxxxxxxxx" + claimed[60:]),
		"a claim without a lease":      text(claimed[:60] + "xxxxxxxxxxxxxxxx" + claimed[76:]),
		"another state":                text("x" + claimed[1:]),
		"half an answer":               text("d" + claimed[1:76]),
		"an answer without its tokens": text("d" + claimed[1:75] + "01" + "fifteen bytes ."),
	} {
		t.Run(what, func(t *testing.T) {
			servers.Redis.Met(t)
			client.Del(t.Context(), name)
			if err := write(); err != nil {
				t.Fatal(err)
			}
			before := client.Dump(t.Context(), name).Val()
			for method, call := range calls(store, again(c)) {
				// Settle reads no more than it needs to see that the claim is not there.
				if err := call(t.Context()); err == nil || isRefusal(err) && method != "Settle" {
					t.Errorf("%s: got %v, want an error", method, err)
				}
			}
			if after := client.Dump(t.Context(), name).Val(); after != before {
				t.Error("it was changed")
			}
		})
	}
}

// TestOptions: each option has an effect, and without one the keys begin as the
// documents say.
func TestOptions(t *testing.T) {
	sent := func(set func(*idemredis.Options)) string {
		var o idemredis.Options
		set(&o)
		client := redistest.Connect(t, &redis.Options{})
		c := unsent(client)
		_, _ = idemredis.New(client, o).Begin(t.Context(), idem.Claim{Lease: time.Second, Retention: time.Second})
		return strings.Join(*c, "\n")
	}
	optiontest.Every(t, sent, map[string]func(*idemredis.Options){
		"Prefix": func(o *idemredis.Options) { o.Prefix = "acme:" },
	})
	if got := sent(func(*idemredis.Options) {}); !strings.HasPrefix(got, "set sallyport:idem:") {
		t.Errorf("got the command %q, want a key that begins with sallyport:idem:", got)
	}
}
