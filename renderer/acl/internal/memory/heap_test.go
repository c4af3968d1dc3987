package memory

import (
	"testing"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/counters"
)

func TestHeapIsParsed(t *testing.T) {
	const real = "Thread 0 vpp_main\n" +
		"  base 0x7f8dc9600000, size 1g, locked, unmap-on-destroy, name 'main heap'\n" +
		"    page stats: page-size 4K, total 262144, mapped 24610, not-mapped 237534\n" +
		"      numa 0: 24610 pages, 96.13m bytes\n" +
		"    total: 1023.99M, used: 87.13M, free: 936.86M, trimmable: 936.61M\n"
	for name, c := range map[string]struct {
		text string
		want counters.Usage
		ok   bool
	}{
		"one thread":          {real, counters.Usage{Total: 1073731338, Used: 91362426}, true},
		"another one behind":  {real + "\nThread 1 vpp_wk_0\n  total: 1K, used: 0, free: 1K, trimmable: 0\n", counters.Usage{Total: 1073731338, Used: 91362426}, true},
		"a nearly full heap":  {"total: 2.50G, used: 2.50G, free: 512, trimmable: 0", counters.Usage{Total: 2684354560, Used: 2684354560}, true},
		"something else":      {"show memory: unknown input", counters.Usage{}, false},
		"nothing":             {"", counters.Usage{}, false},
		"numbers that are no": {"total: 1.2.3M, used: 0, free: 1M, trimmable: 0", counters.Usage{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := parseHeap(c.text); ok != c.ok || got != c.want {
				t.Errorf("got %+v, %t; want %+v, %t", got, ok, c.want, c.ok)
			}
		})
	}
}

// TestHeapCountsWhatOthersTake uses figures that are older than the installed state, and memory that
// VPP keeps.
func TestHeapCountsWhatOthersTake(t *testing.T) {
	const mb, n = 1 << 20, 100_000
	h, takes := &Heap{Most: n}, float64(written(n, n))/mb
	figure := func(beat, used float64, n int) float64 {
		h.look(counters.Usage{Total: 800 * mb, Used: uint64(used * mb), Beat: beat}, n, &SessionTable{})
		return float64(h.Budget) / mb
	}
	kept := float64(written(0, n)) / mb
	for _, x := range []struct {
		what       string
		beat, used float64
		n          int
		want       float64
	}{
		{"nothing is installed, but was", 1, 100 + kept, 0, 600},
		{"entries were installed, the figure is the old one", 1, 100 + kept, n, 600},
		{"the next figure was made after that, or before", 2, 100 + takes, n, 600 - (takes - kept)},
		{"the next one certainly was", 3, 100 + takes, n, 600},
		{"somebody else took 50 MB", 4, 150 + takes, n, 550},
		{"all were removed: VPP keeps what lookups take, which is still ours", 5, 150 + kept, 0, 550},
	} {
		if got := figure(x.beat, x.used, x.n); got < x.want-1 || got > x.want+1 {
			t.Errorf("%s: %.0f MB may be taken, want %.0f", x.what, got, x.want)
		}
	}
}

// TestSegmentCountsWhatFiguresDoNot uses figures that are older than the counters.
func TestSegmentCountsWhatFiguresDoNot(t *testing.T) {
	const mb, n = 1 << 20, 400_000 // counters of 9.2 MB
	s := segment{}
	if !s.fits(2*n, 1) || s.fits(3*n, 1) || s.fits(2*n, 2) {
		t.Error("without a figure, the segment has not 24 MB for counters")
	}
	for _, x := range []struct {
		what          string
		boot, beat    float64
		used, counted int
		fits          bool // n more
	}{
		{"an empty one", 1, 1, 1, 0, true},
		{"the figure is older than the first counters", 1, 1, 1, n, true},
		{"and than more", 1, 1, 1, 2 * n, false},
		{"the next figure may be older, too", 1, 2, 10, 2 * n, false},
		{"the one after that is not", 1, 3, 10, 2 * n, true},
		{"it is nearly full", 1, 4, 20, 2 * n, false},
		{"another vpp", 2, 1, 1, 0, true},
		{"another vpp, whose figure is older than its counters", 3, 1, 1, 2 * n, false},
	} {
		s.look(counters.Usage{Segment: 32 * mb, SegmentUsed: uint64(x.used) * mb, Beat: x.beat, Boot: x.boot}, x.counted)
		if got := s.fits(x.counted+n, 1); got != x.fits {
			t.Errorf("%s: %d more fit: %t, want %t", x.what, n, got, x.fits)
		}
	}
}

// TestHeapHasMargin has what entries took on VPP 25.10 after a deny had come in front of all of them
// and gone: in the heap beside their ACLs, by how far apart the addresses are.
func TestHeapHasMargin(t *testing.T) {
	for _, x := range []struct{ n, each int }{{19 * 5_000, 254}, {94 * 1_000, 347}, {94 * 10_000, 999}} {
		if got, took := Bytes(x.n), uint64(x.n*(x.each+160)); got < took {
			t.Errorf("%d entries took %d MB, forecast are %d", x.n, took>>20, got>>20)
		}
	}
}

// sessionsOfVPP is a shortened answer of VPP 25.10 with two threads.
const sessionsOfVPP = `Sessions total: add 500099 - del 100 = 499999
Sessions active: add 500099 - deact 100 = 499999
Thread #0:
  connection add/del stats:
    sw_if_index 1: add 300099 - del 100 = 299999; epoch chg: 0
    sw_if_index 2: add 0 - del 0 = 0; epoch chg: 0
Thread #1:
  connection add/del stats:
    sw_if_index 1: add 200000 - del 0 = 200000; epoch chg: 0

IPv6 Session lookup hash table:
Hash table 'ACL plugin FA IPv6 session bihash'
    heap: 3952 chunk(s) allocated
          bytes: used 741.25m, scrap 204.56k

IPv4 Session lookup hash table:
    heap: 1 chunk(s) allocated
          bytes: used 512.00k, scrap 0
`

func TestSessionTableIsParsed(t *testing.T) {
	if used, ok := parseSessions(sessionsOfVPP); used != 499999 || !ok {
		t.Errorf("%d sessions, %t", used, ok)
	}
	if got, want := parseHashed(sessionsOfVPP), uint64(74125*(1<<20)/100+1<<19); got != want {
		t.Errorf("the hash tables take %d bytes, want %d", got, want)
	}
	if at := parsePorts(sessionsOfVPP); at[1] != 499999 || at[2] != 0 {
		t.Errorf("sessions by interface: %v", at)
	}
	if _, ok := parseSessions("show acl-plugin: unknown input"); ok {
		t.Error("an error is read as a number of sessions")
	}
}

// TestHeapLeavesRoomForSessions uses a session table that is first missing, then allocated, then
// grows.
func TestHeapLeavesRoomForSessions(t *testing.T) {
	const mb = 1 << 20
	sessions := SessionTable{Sessions: renderer.Sessions{Max: mb / placeBytes * 100}, Threads: 2}
	budget := func(total, used uint64) uint64 {
		h := Heap{}
		h.look(counters.Usage{Total: total * mb, Used: used * mb, Beat: 1}, 0, &sessions)
		return (h.Budget + mb/2) / mb
	}
	// 100 MB for each thread, 7 MB for the hash tables, and at most a quarter of the heap for their
	// growth.
	if got := budget(1000, 50); got != 750-50-207 {
		t.Errorf("before it is made %d MB may be taken", got)
	}
	sessions.made = true
	if got := budget(1000, 257); got != 750-257 {
		t.Errorf("when it is made %d MB may be taken", got)
	}
	sessions.hashed = sessions.Max * sessionBytes
	if got := budget(1000, 450); got != 875-450 {
		t.Errorf("when it has grown %d MB may be taken", got)
	}
}
