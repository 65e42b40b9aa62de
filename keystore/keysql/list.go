package keysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// statuses are those that a page may ask for; no key has another. A statement
// gets the index of one in this list, or -1, and not its text: MySQL compares
// two texts that are not from a table by the collation of the connection.
var statuses = []keystore.Status{"", keystore.Revoked, keystore.Expired, keystore.Suspended, keystore.Active}

// The order of the statuses is that of [keystore.Key.Status]. A time that is
// NULL is never in the past: the comparison is not true. Active keys are told
// twice: Postgres takes what the CASE selects for a few rows, and would read all.
const (
	listKeys = `organization %s ?1
		AND (length(?2) = 0 OR environment = ?2)
		AND (?3 = 0
			OR ?3 = 4 AND NOT suspended AND (revoked_at IS NULL OR revoked_at > ?4)
				AND (expires_at IS NULL OR expires_at > ?4)
			OR CASE
			WHEN revoked_at <= ?4 THEN 1
			WHEN expires_at <= ?4 THEN 2
			WHEN suspended THEN 3
			ELSE 4 END IN (?3, ?6))`

	// Written so that MySQL too starts to read the index at the cursor.
	listAfter = " AND created_at <= ?7 AND (created_at < ?7 OR id < ?8)"

	// All of it stands in the index of live children. With the organization, which
	// is the parent's, Postgres and MySQL may take another one.
	listChildren = `, (SELECT count(*) FROM sallyport_keys AS c WHERE c.parent = sallyport_keys.id AND c.parent <> ''
		AND c.revoked_at IS NULL AND c.expires_at > ?4)`
)

// sortedBy has what [issuing.Order.At] returns. ?7 is that of a key without such
// times. There is no index of it: a page that counts its keys reads all of the
// organization anyway, and one of last use would be written with each use.
var sortedBy = map[issuing.Order]string{
	issuing.ByLastUse: "coalesce(last_used_at, ?7)",
	issuing.ByExpiry: "CASE WHEN revoked_at < coalesce(expires_at, ?7) THEN revoked_at " +
		"ELSE coalesce(expires_at, ?7) END",
}

// mostObserved is of how many keys a page reads which scopes they needed.
const mostObserved = 1000

// List implements [issuing.Store]. It reads the organization's keys from the
// newest on until the page is full: with a condition that few of them meet it
// reads all, 0.1 s for 100,000 keys, as with an Order. With ScopesUnusedSince it reads 1000 of
// those that the rest of the query selects.
func (s *Store) List(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error) {
	status, or := slices.Index(statuses, q.Status), slices.Index(statuses, q.OrStatus)
	if organization == "" && !q.AllOrganizations || // what an erasure leaves has none
		!isText(organization, string(q.Environment), q.CreatedBy, q.RotatedFrom, q.Parent, q.Search) ||
		q.After != nil && !isText(q.After.ID, q.After.Organization) {
		return issuing.Listing{}, nil
	}
	// MySQL sorts where an organization that is given stands in the order.
	compared, after, order, index := "=", listAfter, "created_at DESC, id DESC", ""
	if q.AllOrganizations {
		compared = "<>"
	}
	size := min(cmp.Or(max(q.Limit, 0), 50), 200)
	st := statement{fmt.Sprintf(listKeys, compared),
		[]any{organization, string(q.Environment), status, s.time(time.Now()), size, or}}
	var cursor []any // the arguments of after
	if q.After != nil {
		cursor = []any{s.time(q.Order.At(q.After)), q.After.ID}
	}
	switch sorted := sortedBy[q.Order]; {
	case sorted != "":
		after, order, index = " AND ("+sorted+", id) > (?8, ?9)", sorted+", id", s.byIndex
		st.args = append(st.args, s.time(q.Order.At(new(keystore.Key))))
	case q.AllOrganizations && !q.ExpiresBefore.IsZero():
		after, order = s.later, "expires_at, id"
		if q.After != nil {
			cursor[0] = s.time(q.After.ExpiresAt)
		}
	case q.AllOrganizations:
		after, order, index = s.after, "organization DESC, "+order, s.byIndex
		if q.After != nil {
			cursor = append(cursor, q.After.Organization)
		}
	}
	if q.After != nil {
		st.query, st.args = st.query+after, append(st.args, cursor...)
	}
	// Each condition is left out unless it is asked for. If a parameter switched the
	// cursor off, the database could not start to read the index there.
	if q.Parent == "" {
		st.query += " AND parent = ''" // no parameter, for the partial index of times
	}
	st.where(q.Parent != "", " AND parent = ?", q.Parent)
	st.where(!q.ExpiresBefore.IsZero(), " AND expires_at < ?", s.time(q.ExpiresBefore))
	if !q.ExpiresBefore.IsZero() && q.Status == keystore.Active && q.OrStatus == "" {
		st.query += " AND expires_at > ?4" // what Active says, for the index of times
	}
	st.where(!q.UnusedSince.IsZero(), " AND created_at < ? AND (last_used_at IS NULL OR last_used_at < ?)",
		s.time(q.UnusedSince))
	st.where(q.CreatedBy != "", " AND created_by = ?", q.CreatedBy)
	// The second half lets Postgres and SQLite use the index of successors.
	st.where(q.RotatedFrom != "", " AND rotated_from = ? AND rotated_from <> ''", q.RotatedFrom)
	if q.NeverUsed {
		st.query += " AND last_used_at IS NULL"
	}
	if q.Search != "" {
		st.where(true, " AND (id = ?", q.Search)
		st.where(true, " OR "+fmt.Sprintf(s.folded, "hint")+" = ?", strings.ToLower(q.Search)) // of ASCII alone
		for _, spelling := range spellings(q.Search) {
			st.where(true, " OR "+fmt.Sprintf(s.within, fmt.Sprintf(s.folded, "name"))+" > 0", spelling)
		}
		st.query += ")"
	}
	from := "sallyport_keys" + index
	if since := q.ScopesUnusedSince; !since.IsZero() {
		st.where(true, " AND observed_since <= ?", s.time(since))
		from = fmt.Sprintf("(SELECT * FROM %s WHERE %s ORDER BY %s LIMIT %d) AS sallyport_keys",
			from, st.query, order, mostObserved)
		st.query = ""
		st.where(true, "(SELECT count(*) FROM sallyport_keys_scopes s WHERE s.id = sallyport_keys.id AND "+s.needed+
			" AND s.day >= ?) BETWEEN 1 AND "+s.holding+" - 1", dayOf(since))
	}
	selected, more := columns, []any(nil)
	var page issuing.Listing
	if q.Total {
		selected += ", (SELECT count(*) FROM " + from + " WHERE " + st.query + ")"
		more = append(more, &page.Total)
	}
	children := 0
	if q.Children {
		page.Children = make(map[string]int)
		selected += listChildren
		more = append(more, &children)
	}
	st.query = "SELECT " + selected + " FROM " + from + " WHERE " + st.query + " ORDER BY " + order + " LIMIT ?5"
	err := s.rows(ctx, "list", st, func(rows *sql.Rows) error {
		k, err := scanKey(rows, more...)
		if page.Keys = append(page.Keys, k); err == nil && children > 0 {
			page.Children[k.ID] = children
		}
		return err
	})
	if err != nil {
		return issuing.Listing{}, err
	}
	return page, nil
}

// spellings returns how a text may stand in a name whose ASCII letters are in
// lower case: as it is, all in lower or upper case, or in words with capitals.
// Postgres and SQLite fold no other letters.
func spellings(text string) (all []string) {
	within := false
	words := strings.Map(func(r rune) rune {
		begins := !within
		if within = unicode.IsLetter(r); begins {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, text)
	for _, spelling := range []string{text, strings.ToLower(text), strings.ToUpper(text), words} {
		all = append(all, strings.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			return r
		}, spelling))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
