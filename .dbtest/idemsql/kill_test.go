package idemsql_test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// killUnderLoad kills the server at random moments while clients create tasks,
// and returns what they were told in the end.
func killUnderLoad(t *testing.T, d database, mode string) (created, unknown int) {
	server := startChild(t, d, mode)
	clients := startCrowd(t, 8, server.post)
	for range kills {
		// Some of these are a server's first moments, most are in its full run.
		<-time.After(time.Duration(rand.IntN(250)) * time.Millisecond)
		server.kill()
		if t.Failed() {
			break
		}
		server.start()
	}
	created, unknown = clients.stop()
	t.Logf("%s, %s: %d kills, %d keys, %d of them with an unknown outcome", d.name, mode, kills, created+unknown, unknown)
	return created, unknown
}

// Exactly once under kill -9: every key gets an answer, always the same, and
// there is one row for each.
func TestKillJoined(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		created, unknown := killUnderLoad(t, d, "joined")
		if unknown != 0 {
			t.Errorf("%d keys ended with an unknown outcome, want none", unknown)
		}
		db := d.open(t)
		mustCount(t, db, "SELECT count(*) FROM tasks", created)
		mustCount(t, db, "SELECT count(DISTINCT title) FROM tasks", created)
	})
}

// At most once with leases: a key that was cut off ends with an unknown
// outcome, and never with two rows.
func TestKillLeased(t *testing.T) {
	t.Parallel()
	inServers(t, func(t *testing.T, d database) {
		created, unknown := killUnderLoad(t, d, "leased")
		db := d.open(t)
		mustCount(t, db, "SELECT count(*) - count(DISTINCT title) FROM tasks", 0)
		if rows := count(t, db, "SELECT count(*) FROM tasks"); rows < created || rows > created+unknown {
			t.Errorf("got %d rows for %d tasks created and %d unknown", rows, created, unknown)
		}
	})
}

// A second attempt where the route asked for it: every key gets an answer.
func TestKillReexecuted(t *testing.T) {
	t.Parallel()
	inServers(t, func(t *testing.T, d database) {
		created, unknown := killUnderLoad(t, d, "reexecuted")
		if unknown != 0 {
			t.Errorf("%d keys ended with an unknown outcome, want none", unknown)
		}
		mustCount(t, d.open(t), "SELECT count(DISTINCT title) FROM tasks", created)
	})
}
