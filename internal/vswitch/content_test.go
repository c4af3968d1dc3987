package vswitch

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
)

var v4 = netip.MustParsePrefix("0.0.0.0/0")

// TestContentsAreSharedAndForgotten: ACLs with equal rules have one content, others do not, and
// what no ACL has any more is not found.
func TestContentsAreSharedAndForgotten(t *testing.T) {
	var s contents
	web, ssh := Rule{Action: RulePermit, Src: v4, Dst: v4, Protocol: api.TCP}, Rule{Action: RulePermit, Src: v4, Dst: v4, Protocol: api.UDP}
	a, b, c, none := s.of([]Rule{web, ssh}), s.of([]Rule{web, ssh}), s.of([]Rule{ssh, web}), s.of(nil)
	if a != b || a == c || none == a || s.of(nil) != none {
		t.Errorf("contents %p and %p of equal rules, %p of others, %p of none", a, b, c, none)
	}
	for _, c := range []*content{a, b, c, none} {
		runtime.KeepAlive(c) // up to here
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		s.mu.Lock()
		left := len(s.by)
		s.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d contents are kept for no ACL", left)
		}
	}
}

// TestContentsOfOneHashAreNotMixed has a rule find the content of another with its hash.
func TestContentsOfOneHashAreNotMixed(t *testing.T) {
	var s contents
	web, ssh := []Rule{{Action: RulePermit, Src: v4, Dst: v4, Protocol: api.TCP}}, []Rule{{Action: RulePermit, Src: v4, Dst: v4, Protocol: api.UDP}}
	a := s.of(web)
	a.rules = rulesToWire(ssh) // as of others that have the hash
	if b := s.of(web); b == a {
		t.Error("an ACL has the rules of another")
	}
}
