package idemsql

import (
	"encoding/hex"
	"time"
)

// watch logs a handler that seems to wait for itself: it holds one connection,
// all others are in use, and something waits for one more.
func (j *joined) watch() {
	before := j.store.db.Stats().WaitCount
	j.timer = time.AfterFunc(stall, func() {
		if s := j.store.db.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections && s.WaitCount > before {
			j.store.options.Logger.WarnContext(j.ctx,
				"a joined request holds its transaction for long while the pool has no connection left; "+
					"a handler that uses the *sql.DB in place of idemsql.Tx may be waiting for itself",
				"key", j.name(), "connections", s.MaxOpenConnections, "since", stall)
		}
	})
}

// name is what logs say of the key: enough to find it in the table.
func (j *joined) name() string { return hex.EncodeToString(j.key[:8]) }
