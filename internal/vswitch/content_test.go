package vswitch

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/api"
)

// TestContentsAreSharedByEqualACLsOnly also has rules find the content of others with their hash.
func TestContentsAreSharedByEqualACLsOnly(t *testing.T) {
	anybody := netip.MustParsePrefix("0.0.0.0/0")
	web, name := Rule{Action: RulePermit, Src: anybody, Dst: anybody, Protocol: api.TCP}, Rule{Action: RulePermit, Src: anybody, Dst: anybody, Protocol: api.UDP}
	a, b, turned, none := contentWithRules([]Rule{web, name}), contentWithRules([]Rule{web, name}), contentWithRules([]Rule{name, web}), contentWithRules(nil)
	if a != b || a == turned || none == a || contentWithRules(nil) != none {
		t.Errorf("contents %p and %p of equal rules, %p of others, %p of none", a, b, turned, none)
	}
	a.rules = turned.rules // as if these had the same hash
	if got := contentWithRules([]Rule{web, name}); got == a || got.rule(0) != web {
		t.Errorf("an ACL begins with %v", got.rule(0))
	}
}

// TestContentOfMessageIsValidated: a switch with VPP's quirks accepts an unknown action. Others do
// not, although an ACL has it.
func TestContentOfMessageIsValidated(t *testing.T) {
	anybody := netip.MustParsePrefix("0.0.0.0/0")
	wire := rulesToWire([]Rule{{Action: RulePermitReflect + 1, Src: anybody, Dst: anybody}})
	quirky, rv := contentFromWire(wire, true)
	if again, _ := contentFromWire(slices.Clone(wire), true); rv != 0 || again != quirky {
		t.Errorf("with quirks: %d, content %p, then %p", rv, quirky, again)
	}
	if c, rv := contentFromWire(slices.Clone(wire), false); rv != govpp.INVALID_VALUE {
		t.Errorf("without quirks: %d, content %p, while %p is in use", rv, c, quirky)
	}
	plain := rulesToWire([]Rule{{Action: RulePermit, Src: anybody, Dst: anybody}})
	padded := slices.Clone(plain)
	padded[0].SrcPrefix.Address.Un.XXX_UnionData[15] = 1 // behind an address of IPv4
	a, _ := contentFromWire(plain, false)
	if b, _ := contentFromWire(padded, false); a != b {
		t.Error("one rule has two contents")
	}
	runtime.KeepAlive(quirky)
}
