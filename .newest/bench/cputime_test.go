package bench_test

import (
	"syscall"
	"time"
)

// cpuTime is what this process has had of the processors, its garbage collector
// included. On a machine that does other work too it says more than the clock
// does.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
