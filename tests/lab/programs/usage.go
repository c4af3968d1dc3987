package programs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Usage is what a process has used.
type Usage struct {
	CPU       time.Duration // in steps of 10 ms
	RSS, Peak int64         // bytes
}

// UsageOf returns what a process that runs has used until now.
func UsageOf(t testing.TB, pid int) (u Usage) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	status, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	u.CPU = time.Duration(user+system) * 10 * time.Millisecond
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &u.RSS) // other lines are not these
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &u.Peak)
	}
	u.RSS, u.Peak = u.RSS<<10, u.Peak<<10
	return u
}
