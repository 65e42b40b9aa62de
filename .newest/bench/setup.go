// Package bench measures Sallyport beside what an engineer would compose from
// other libraries, on the same requests, and shows what each answers.
//
// It is a module of its own in a hidden folder, so that no importer of
// Sallyport sees its requirements. ./run has benchstat compare peers, ./loopback
// compares whole servers, ./page writes the page of the benchmarks, and
// "go test -run Correct -v" says what each peer answers.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// Every peer answers with the same bytes.
const (
	listBody    = `{"data":[{"id":"task_1","title":"Call the bank","state":"open"}]}`
	createdBody = `{"id":"task_1","title":"Call the bank","state":"open","created_at":"2026-11-21T00:00:00Z"}`
	halfBody    = `{"data":[`
	location    = "/api/v1/tasks/task_1"
)

// ManyKeys is how many keys a Setup has, each of an organization of its own.
const ManyKeys = 10_000

// Setup is the world that a server is built for.
type Setup struct {
	Tokens []string // of live keys that may read and write tasks, and nothing else
	Stray  string   // the token of no key, with a valid checksum

	Limit  int // requests of an organization in each Period
	Period time.Duration

	Delay time.Duration // how long a create takes
	Runs  atomic.Int64  // how many creates ran
	Down  atomic.Bool   // whether the store of keys fails

	keys map[keystore.Digest]*keystore.Key
	hand *handKeys
}

var errDown = errors.New("bench: the store of keys is down")

// NewSetup returns a Setup with a limit that nobody reaches.
func NewSetup(keys int) *Setup {
	s := &Setup{Limit: 1e9, Period: time.Hour, keys: make(map[keystore.Digest]*keystore.Key)}
	s.hand = &handKeys{down: &s.Down, keys: make(map[[32]byte]*identity)}
	for i := range keys {
		token := keystore.Service{}.Generate(keystore.Production).Reveal()
		k := &keystore.Key{ID: fmt.Sprintf("key_%06d", i), Organization: fmt.Sprintf("org_%06d", i),
			Digest: keystore.DigestOf(token), Environment: keystore.Production,
			Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}}
		s.keys[k.Digest] = k
		s.Tokens = append(s.Tokens, token)
		s.hand.add(token, &identity{key: k.ID, org: k.Organization, scopes: []string{"tasks:read", "tasks:write"}})
	}
	rand.Shuffle(len(s.Tokens), func(i, j int) { s.Tokens[i], s.Tokens[j] = s.Tokens[j], s.Tokens[i] })
	s.Stray = keystore.Service{}.Generate(keystore.Production).Reveal()
	return s
}

// Limited returns a Setup with the same keys and another limit.
func (s *Setup) Limited(limit int, period time.Duration) *Setup {
	o := &Setup{Tokens: s.Tokens, Stray: s.Stray, Limit: limit, Period: period, keys: s.keys}
	o.hand = &handKeys{down: &o.Down, keys: s.hand.keys}
	return o
}

// create is what a POST does, apart from its answer.
func (s *Setup) create() {
	if s.Delay > 0 {
		time.Sleep(s.Delay)
	}
	s.Runs.Add(1)
}

// Lookup implements keystore.Store.
func (s *Setup) Lookup(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
	if s.Down.Load() {
		return nil, errDown
	}
	if k := s.keys[d]; k != nil {
		return k, nil
	}
	return nil, keystore.ErrNotFound
}

// Request is what a benchmark sends again and again.
type Request struct{ Method, Path, Body string }

// Server is a composition, built for a Setup.
type Server interface {
	// Loop returns a function that serves the request with the value of an
	// Authorization header and an idempotency key, "" meaning none, and returns
	// the status. It is for one goroutine.
	Loop(Request) func(authorization, key string) int

	// Serve serves a listener until that is closed.
	Serve(net.Listener)
}

// Peer is one composition.
type Peer struct {
	Name   string
	Keyed  bool // replays creates
	Scopes bool // knows organizations, scopes and limits; false for the bare handlers
	New    func(*Setup) Server
}

// Peers are all compositions. The first three are ours, and the bare handlers
// are last.
func Peers() []Peer {
	return []Peer{
		{"sallyport", true, true, newSallyport},
		{"sallyport-pieces", true, true, newPieces},
		{"sallyport-recipe", true, true, newRecipe},
		{"chi+httprate", false, true, newChi},
		{"hlog+lru+ulule", false, true, newHlog},
		{"sethvargo+hand", true, true, newSethvargo},
		{"hand-lru", true, true, newLRU},
		{"gin+ulule", false, true, newGin},
		{"echo", false, true, newEcho},
		{"fiber", true, true, newFiber},
		{"bare", false, false, newBare},
		{"bare-fiber", false, false, newBareFiber},
	}
}

// Defaults are peers as they come, where Peers sets an option that their
// documentation has and that repairs an answer.
func Defaults() []Peer {
	return []Peer{
		{"echo, defaults", false, true, newEchoDefaults},
		{"fiber, defaults", true, true, newFiberDefaults},
	}
}

// writeHalf is a handler that loses its nerve.
func writeHalf(w io.Writer) {
	io.WriteString(w, halfBody)
	panic("half")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
