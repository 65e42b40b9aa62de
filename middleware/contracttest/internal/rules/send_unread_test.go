package rules

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestUnread(t *testing.T) {
	call := func(op string, err error) error {
		return fmt.Errorf("send: %w", &net.OpError{Op: op, Err: os.NewSyscallError(op, err)})
	}
	for err, want := range map[error]bool{
		nil:                                false,
		errors.New("reset"):                false,
		call("write", syscall.EPIPE):       true,
		call("write", syscall.ECONNRESET):  true,
		call("read", syscall.ECONNRESET):   false,
		call("dial", syscall.ECONNREFUSED): false,
	} {
		if unread(err) != want {
			t.Errorf("%v: got %t, want %t", err, !want, want)
		}
	}
}
