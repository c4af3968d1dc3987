package vswitch

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// TestContentsAreSharedByEqualACLsOnly also has rules find the content of others with their hash.
func TestContentsAreSharedByEqualACLsOnly(t *testing.T) {
	anybody := netip.MustParsePrefix("0.0.0.0/0")
	web, name := Rule{Action: RulePermit, Src: anybody, Dst: anybody, Protocol: api.TCP}, Rule{Action: RulePermit, Src: anybody, Dst: anybody, Protocol: api.UDP}
	a, b, turned, none := contentOf([]Rule{web, name}), contentOf([]Rule{web, name}), contentOf([]Rule{name, web}), contentOf(nil)
	if a != b || a == turned || none == a || contentOf(nil) != none {
		t.Errorf("contents %p and %p of equal rules, %p of others, %p of none", a, b, turned, none)
	}
	a.rules = turned.rules // as if these had the same hash
	if got := contentOf([]Rule{web, name}); got == a || got.rule(0) != web {
		t.Errorf("an ACL begins with %v", got.rule(0))
	}
}
