package acl

import "testing"

func TestTheHeapOfVPPIsUnderstood(t *testing.T) {
	const real = "Thread 0 vpp_main\n" +
		"  base 0x7f8dc9600000, size 1g, locked, unmap-on-destroy, name 'main heap'\n" +
		"    page stats: page-size 4K, total 262144, mapped 24610, not-mapped 237534\n" +
		"      numa 0: 24610 pages, 96.13m bytes\n" +
		"    total: 1023.99M, used: 87.13M, free: 936.86M, trimmable: 936.61M\n"
	for name, c := range map[string]struct {
		text string
		want usage
		ok   bool
	}{
		"one thread":          {real, usage{total: 1073731338, used: 91362426}, true},
		"another one behind":  {real + "\nThread 1 vpp_wk_0\n  total: 1K, used: 0, free: 1K, trimmable: 0\n", usage{total: 1073731338, used: 91362426}, true},
		"a nearly full heap":  {"total: 2.50G, used: 2.50G, free: 512, trimmable: 0", usage{total: 2684354560, used: 2684354560}, true},
		"something else":      {"show memory: unknown input", usage{}, false},
		"nothing":             {"", usage{}, false},
		"numbers that are no": {"total: 1.2.3M, used: 0, free: 1M, trimmable: 0", usage{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := parseHeap(c.text); ok != c.ok || got != c.want {
				t.Errorf("got %+v, %t; want %+v, %t", got, ok, c.want, c.ok)
			}
		})
	}
}

// TestHeapCountsWhatAFigureMayNotHave has figures that are older than what was installed, and
// memory that VPP keeps.
func TestHeapCountsWhatAFigureMayNotHave(t *testing.T) {
	const mb = 1 << 20
	h := &heap{}
	figure := func(beat, used float64, now uint64) uint64 {
		h.look(usage{total: 800 * mb, used: uint64(used * mb), beat: beat}, now*mb)
		return h.budget / mb
	}
	for _, x := range []struct {
		what       string
		beat, used float64
		now, want  uint64
	}{
		{"nothing is installed", 1, 100, 0, 600},
		{"200 MB were installed, the figure is the old one", 1, 100, 200, 600},
		{"the next figure was made after that", 2, 300, 200, 600},
		{"somebody else took 50 MB", 3, 350, 200, 550},
		{"100 MB were removed, of which VPP keeps all: they are still ours", 4, 350, 200, 550},
	} {
		if got := figure(x.beat, x.used, x.now); got != x.want {
			t.Errorf("%s: %d MB may be taken, want %d", x.what, got, x.want)
		}
	}
	h.plan(&forecast{all: []*chain{{rehashed: 1000}}, most: hashBuckets, low: 150 * mb})
	if got, want := figure(4, 350, 200), uint64(550); got >= want || got < want-1 {
		t.Errorf("a plan had VPP apply 1 000 entries again: %d MB may be taken, want a little less than %d", got, want)
	}
	if got, want := figure(5, 350, 200), uint64(550); got != want {
		t.Errorf("the figure after that: %d MB may be taken, want %d", got, want)
	}
}
