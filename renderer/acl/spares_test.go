package acl_test

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// TestSparesKeepLongListsFew removes old addresses, removes and restores all policies, and
// replaces renderers. VPP never frees the counters of an ACL index, so the number of indexes that
// ever had long lists must not grow.
func TestSparesKeepLongListsFew(t *testing.T) {
	all := scattered(5000)
	s, pods := sharing(t, 5000)
	s.tap.changed = nil
	long := make(map[uint32]int)
	look := func() {
		for _, a := range s.sw.ACLs() {
			if a.Rules > 256 {
				long[a.Index] = max(long[a.Index], a.Rules)
			}
		}
	}
	look()
	const groups = sharingPods / sharers
	if len(long) != groups {
		t.Fatalf("%d ACLs have long lists, want one for each group", len(long))
	}
	members := all
	for round := range 6 {
		for range 3 {
			commit(t, s.Renderer(), false, func(x *renderer.Changes) { x.UpdateSet(throng, nil, members[:1]) })
			members = members[1:]
			look()
		}
		switch round % 3 {
		case 0:
			commit(t, s.Renderer(), false, func(x *renderer.Changes) {
				for _, p := range pods {
					x.Remove(p)
				}
			})
			look()
		case 1:
			s.reopen(t, sluiceacl.Options{})
		}
		commit(t, s.Renderer(), true, func(x *renderer.Changes) {
			x.UpdateSet(throng, members, nil)
			for i := range sharingPods {
				letIn(x, pods[i], i)
			}
		})
		look()
		if !slices.ContainsFunc(s.sw.ACLs(), func(a vswitch.ACL) bool { return a.Tag == sluiceacl.SpareTag }) {
			t.Errorf("round %d: there is no spare", round)
		}
		s.want(t, members[0].Addr().String(), "10.0.0.20", 80, api.Permit)
	}
	s.reopen(t, sluiceacl.Options{})
	commit(t, s.Renderer(), true, nothing)
	for _, a := range s.sw.ACLs() {
		if a.Tag != sluiceacl.SpareTag || a.Rules > 0 {
			t.Errorf("a renderer that wants nothing leaves %v", a)
		}
	}
	if len(long) > groups+1 {
		t.Errorf("%d ACLs have had long lists, want no more than %d and a spare: %v", len(long), groups, long)
	}
}
