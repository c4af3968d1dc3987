package e2e

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inMemory returns a directory that no disk is behind, until the test ends.
func inMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sluice-") //nolint:usetesting // it must not be on a disk
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // memory that the next start gives back
	return dir
}

// waits is how long something on this machine has waited for a processor or a disk since it
// started: the time includes work other than the test.
type waits struct{ processor, disk time.Duration }

func waitsOf(t testing.TB) (w waits) {
	t.Helper()
	for name, to := range map[string]*time.Duration{"cpu": &w.processor, "io": &w.disk} {
		text, err := os.ReadFile("/proc/pressure/" + name)
		if err != nil {
			continue // the kernel does not count that
		}
		_, total, _ := strings.Cut(strings.SplitN(string(text), "\n", 2)[0], "total=")
		n, err := strconv.Atoi(total)
		if err != nil {
			t.Fatalf("/proc/pressure/%s: %v", name, err)
		}
		*to = time.Duration(n) * time.Microsecond
	}
	return w
}

func (w waits) since(before waits, took time.Duration) string {
	load, _ := os.ReadFile("/proc/loadavg")
	part := func(d time.Duration) float64 { return 100 * d.Seconds() / took.Seconds() }
	return fmt.Sprintf("the load is %s; something waited for a processor for %.0f %% of the time, for a disk for %.0f %%",
		strings.TrimSpace(string(load)), part(w.processor-before.processor), part(w.disk-before.disk))
}

// syncs is how often etcd has waited for its disk, by what and by the longest time in
// seconds that a wait took: the buckets of its own histograms.
type syncs map[string]map[float64]int

var syncKinds = map[string]string{"wal_fsync": "log", "backend_commit": "database"}

func (s *scale) syncs() syncs {
	s.t.Helper()
	resp, err := http.Get("http://" + s.members.Endpoints()[0] + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	out := syncs{}
	for name, kind := range syncKinds {
		out[kind] = map[float64]int{}
		line := regexp.MustCompile(`(?m)^etcd_disk_` + name + `_duration_seconds_bucket\{le="(\S+)"\} (\d+)$`)
		for _, m := range line.FindAllStringSubmatch(string(body), -1) {
			bound, errBound := strconv.ParseFloat(m[1], 64)
			n, errCount := strconv.Atoi(m[2])
			if errBound != nil || errCount != nil {
				s.t.Fatalf("etcd says %q", m[0])
			}
			out[kind][bound] = n
		}
	}
	return out
}

func (a syncs) since(before syncs) string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(a)) {
		bounds := slices.Sorted(maps.Keys(a[kind]))
		n := a[kind][math.Inf(1)] - before[kind][math.Inf(1)]
		within := func(part float64) time.Duration {
			for _, bound := range bounds {
				if done := a[kind][bound] - before[kind][bound]; float64(done) >= part*float64(n) && !math.IsInf(bound, 1) {
					return time.Duration(bound * float64(time.Second))
				}
			}
			return time.Duration(math.MaxInt64)
		}
		out = append(out, fmt.Sprintf("etcd synced its %s %d times: p50 below %v, p99 below %v, all below %v", kind, n, within(.5), within(.99), within(1)))
	}
	return strings.Join(out, "; ")
}
