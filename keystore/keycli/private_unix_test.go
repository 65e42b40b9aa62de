//go:build unix

package keycli_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

// A file that somebody else can have written is not gone on with: they would know
// the tokens in it. Nor is a pipe, which has no end.
func TestRotateIntoAFileOfOthers(t *testing.T) {
	s := newShell(t)
	s.old(map[string]keystore.Key{"one": {}})
	directory := t.TempDir()
	file, pipe := filepath.Join(directory, "new.json"), filepath.Join(directory, "pipe")
	token := keystore.Service{}.Generate(keystore.Sandbox).Reveal()
	planted, err := json.Marshal(map[string]any{"organization": "acme",
		"made_before": aMonthAgo + "T00:00:00Z",
		"keys":        []map[string]string{{"rotated_from": "one", "token": token}}})
	if err = errors.Join(err, os.WriteFile(file, planted, 0o600), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	line, before := "rotate -yes"+madeBefore+" -secrets ", s.does("", "list -org acme -json")
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		s.ends(2, file+" must be a file of yours that nobody else may read or write", "", line+file)
	}
	s.ends(2, pipe+" must be a file of yours", "", line+pipe)
	if os.Geteuid() == 0 { // who else can give a file away
		if err := errors.Join(os.Chmod(file, 0o600), os.Chown(file, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		s.ends(2, file+" must be a file of yours", "", line+file)
	}
	if got := s.does("", "list -org acme -json"); got != before {
		t.Errorf("got the keys %s, want as before, %s", got, before)
	}
	if err := errors.Join(os.Chmod(file, 0o600), os.Chown(file, os.Geteuid(), -1)); err != nil {
		t.Fatal(err)
	}
	s.ends(0, "1 of 1 keys are rotated", "", line+file)
}
