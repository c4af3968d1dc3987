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
		"one thread":          {real, usage{1073731338, 982368911}, true},
		"another one behind":  {real + "\nThread 1 vpp_wk_0\n  total: 1K, used: 0, free: 1K, trimmable: 0\n", usage{1073731338, 982368911}, true},
		"a nearly full heap":  {"total: 2.50G, used: 2.50G, free: 512, trimmable: 0", usage{2684354560, 512}, true},
		"something else":      {"show memory: unknown input", usage{}, false},
		"nothing":             {"", usage{}, false},
		"numbers that are no": {"total: 1.2.3M, used: 0, free: 1M, trimmable: 0", usage{0, 1 << 20}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := parseHeap(c.text); ok != c.ok || got != c.want {
				t.Errorf("got %+v, %t; want %+v, %t", got, ok, c.want, c.ok)
			}
		})
	}
}
