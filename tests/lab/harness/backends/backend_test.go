package backends

import (
	"slices"
	"strings"
	"testing"
)

func TestBackendIsChosenByName(t *testing.T) {
	if kinds, err := chosen(""); err != nil || len(kinds) != len(Usual()) || slices.ContainsFunc(kinds, func(k Kind) bool { return k.Alone }) {
		t.Errorf("without a name %d of %d kinds are tested (%v)", len(kinds), len(All), err)
	}
	for _, k := range All {
		kinds, err := chosen(k.Name)
		if err != nil || len(kinds) != 1 || kinds[0].Name != k.Name || kinds[0].Slow != (k.On != nil) {
			t.Errorf("%s: tested is %+v (%v), want it alone and as much as any, without processes", k.Name, kinds, err)
		}
	}
}

func TestBackendOfUnknownNameIsRefused(t *testing.T) {
	kinds, err := chosen("xdp-kernl")
	if err == nil || len(kinds) > 0 {
		t.Fatalf("%d kinds are tested (%v)", len(kinds), err)
	}
	for _, part := range []string{`SLUICE_STACK: "xdp-kernl"`, "acl, xdp, xdp-kernel, session"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: does not say %s", err, part)
		}
	}
}
