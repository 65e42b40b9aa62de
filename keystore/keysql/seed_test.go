package keysql_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

// seed inserts n keys of an organization with one statement. The i-th has the
// digest seeded(organization, i), and is older than the one after it.
func seed(t testing.TB, d database, organization string, n int) {
	t.Helper()
	execute(t, d.open(t), seeding(d, organization, n))
}

// seeding returns the statement of seed, which leaves the columns to their
// defaults that an earlier version did not have.
func seeding(d database, organization string, n int) string {
	statement := `
		INSERT INTO sallyport_keys (id, digest, organization, environment, name, hint, scopes, created_at, created_by, suspended, issue_token, rotated_from, version)
		WITH RECURSIVE series (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM series WHERE i < $n)
		SELECT '$org' || '_key_' || i, $digest, '$org', 'production', 'Nightly import', 'x7Q9', '["tasks:read","tasks:write"]', $created, 'user_1', $false, 'token_' || i, '', 1
		FROM series`
	words := []string{"$n", fmt.Sprint(n), "$org", organization}
	hash := fmt.Sprintf("%x", digestPrefix(organization))
	switch d.name {
	case "mariadb":
		statement = `
			INSERT INTO sallyport_keys (id, digest, organization, environment, name, hint, scopes, created_at, created_by, suspended, issue_token, rotated_from, version)
			SELECT CONCAT('$org', '_key_', i), $digest, '$org', 'production', 'Nightly import', 'x7Q9', '["tasks:read","tasks:write"]', $created, 'user_1', false, CONCAT('token_', i), '', 1
			FROM JSON_TABLE(CONCAT('[', REPEAT('0,', $n - 1), '0]'), '$[*]' COLUMNS (i FOR ORDINALITY)) AS series`
		words = append(words, "$digest", "UNHEX(CONCAT('"+hash+"', LPAD(HEX(i), 32, '0')))",
			"$created", "(UNIX_TIMESTAMP() - 86400) * 1000000 + i * 1000")
	case "postgres":
		words = append(words, "$digest", "decode('"+hash+"' || lpad(to_hex(i), 32, '0'), 'hex')",
			"$created", "now() - interval '1 day' + i * interval '1 millisecond'", "$false", "false")
	case "sqlite":
		words = append(words, "$digest", "unhex('"+hash+"' || printf('%032x', i))",
			"$created", "(unixepoch() - 86400) * 1000000 + i * 1000", "$false", "0")
	}
	return strings.NewReplacer(words...).Replace(statement)
}

func digestPrefix(organization string) []byte {
	d := keystore.DigestOf(organization)
	return d[:16]
}

func seeded(organization string, i int) (d keystore.Digest) {
	copy(d[:], digestPrefix(organization))
	binary.BigEndian.PutUint64(d[24:], uint64(i))
	return d
}
