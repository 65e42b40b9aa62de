package claims

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

const (
	charged = `
		SELECT r.request_key, r.token, r.account, coalesce(r.units, 0), r.began, r.state
		FROM sallyport_idem AS r WHERE `

	// due says of a row that it has a charge that is final.
	due = "r.account IS NOT NULL AND (r.state = 3 OR r.expires_at <= {now})"

	// Due returns charges that are final and not added up, at most $1. The order is
	// that of the index, which MySQL would not use otherwise.
	Due = charged + due + " ORDER BY r.account LIMIT $1"

	// Uncertain returns the oldest charges that are uncertain, at most $1.
	Uncertain = charged + `r.account IS NOT NULL AND r.units > 0
			AND (r.state = 4 OR r.state = 1 AND r.lease_ends <= {now})
		ORDER BY r.began LIMIT $1`

	// NotDue says of a row that no charge that is final is lost with it.
	NotDue = "(account IS NULL OR state <> 3 AND expires_at > {now})"

	// Used returns what accounts from $1 on and before $2, which are $1 and those
	// within it, have used since the day $3, which began at $4; and the time.
	Used = `
		SELECT (SELECT coalesce(sum(units), 0) FROM sallyport_used WHERE account = $1 AND day >= $3)
			+ (SELECT coalesce(sum(r.units), 0) FROM sallyport_idem AS r
				WHERE r.account >= $1 AND r.account < $2 AND r.began >= $4 AND (r.state <> 1 OR r.lease_ends <= {now})),
			{micros}`
)

// Count returns the statement that charges an account for what has no key, by a
// row like that of a key that is done.
func Count(empty, more, value string) string {
	return `
		INSERT INTO sallyport_idem ` + columns(more) + `
		VALUES ($1, $2, $3, 1, 3, {now}, {now} + {us} * $4, ` + empty + `, $5, {micros}, $6` + value + `)`
}

// CountArgs returns the parameters of Count. It is enough that the row is there
// until its charge is added up.
func CountArgs(a idem.Account, units int64) []any {
	var key [48]byte
	rand.Read(key[:])
	return []any{key[:32], key[32:], make([]byte, 32), time.Minute.Microseconds(), []byte(a), Units(units)}
}

// UsedArgs returns the parameters of Used. The first days of 1970 have no charges,
// but what the fold keeps in their place.
func UsedArgs(a idem.Account, since time.Time) []any {
	day := max(Day(since), 2)
	end := append([]byte(nil), a...)
	if len(end) > 0 {
		end[len(end)-1]++ // the last byte is 0, and no other name has it
	}
	return []any{[]byte(a), end, day, day * 24 * time.Hour.Microseconds()}
}

// Day returns the number of a UTC day since 1970.
func Day(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// A Row is the charge of a row of Due or Uncertain.
type Row struct {
	Key, token, account []byte
	units, began, state int64
}

// Columns returns where the columns go.
func (r *Row) Columns() []any {
	return []any{&r.Key, &r.token, &r.account, &r.units, &r.began, &r.state}
}

// Charge returns the charge.
func (r *Row) Charge() idem.Charge {
	id := sha256.Sum256(append(append([]byte(nil), r.Key...), r.token...))
	return idem.Charge{
		ID: hex.EncodeToString(id[:16]), Account: idem.Account(r.account), Units: r.units,
		Began: time.UnixMicro(r.began).UTC(), Uncertain: idem.State(r.state) != idem.Done,
	}
}
