package acl

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

func TestRefusalsOfOneRuleAreMerged(t *testing.T) {
	f := &refusals{}
	rule := api.Origin{Policy: api.PolicyID{Namespace: "shop", Name: "p"}, Rule: 1}
	for range 3 { // interfaces
		f.add(ErrTooLarge, reasonACLs, [][]api.Origin{{rule}, {rule}}, 1)
	}
	x := cache.NewUnenforcedTracker(reasonSCTP, namesSCTPPort)
	x.Refused(f.oversize)
	want := []renderer.Unenforced{{Origin: rule, Class: api.ClassLimit, Reason: reasonACLs, Effect: renderer.EffectPrevious, Pods: 3}}
	if diff := cmp.Diff(want, x.Unenforced()); diff != "" {
		t.Error(diff)
	}
	if x.Refused(nil); len(x.Unenforced()) > 0 {
		t.Errorf("left over: %v", x.Unenforced())
	}
}
