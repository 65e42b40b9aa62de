package idemsql_test

import (
	"os"
	"strings"
	"testing"
)

// What keysql and idemsql share stands in both, word for word. The tests of it
// are those of keysql.
func TestSharedWithKeysql(t *testing.T) {
	for _, file := range []string{"migration.go", "mysqlerror.go", "prefix.go"} {
		ours, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := os.ReadFile("../../keystore/keysql/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimPrefix(string(ours), "package idemsql\n") != strings.TrimPrefix(string(theirs), "package keysql\n") {
			t.Errorf("%s differs from that of keysql; only the package may", file)
		}
	}
}
