package claims

import "sync/atomic"

// A handler of Postgres may take another role, one without rights on the table.
// NoteRole keeps in the transaction the role that the session has at the claim,
// by a hook of the pool perhaps. RestoreRole takes it again, and reports whether
// the handler had another one.
const (
	NoteRole    = "SELECT set_config('sallyport.role', current_setting('role'), true)"
	RestoreRole = `
		SELECT current_setting('role') <> r.claimed, set_config('role', r.claimed, false)
		FROM (SELECT coalesce(nullif(current_setting('sallyport.role', true), ''), current_setting('role')) AS claimed) AS r`
)

// roleTrials is how many transactions in a row keep their role until it is taken
// for a rule.
const roleTrials = 100

// Roles says whether the role of a transaction is to be restored. That takes a
// tenth of the time of a small create, so it ends when no handler changes it.
type Roles struct{ kept atomic.Int64 }

// Watched reports whether the next transaction notes its role.
func (r *Roles) Watched() bool { return r.kept.Load() < roleTrials }

// Found is told whether a transaction that did had another role at its end.
func (r *Roles) Found(changed bool) {
	if !changed {
		r.kept.Add(1)
		return
	}
	r.kept.Store(-1 << 62) // from now on
}

// Moment returns that of an error at the settlement. Where it may be the role of
// a transaction that had not noted it, the next try succeeds.
func (r *Roles) Moment(watched bool, err error) Moment {
	if !watched && SQLState(err) == "42501" {
		r.Found(true)
		return AtClaim
	}
	return AtSettlement
}
