package configurator

import (
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

func TestRefusalIsReportedWhileInUse(t *testing.T) {
	in := newInterner(true)
	origin := api.Origin{Policy: api.PolicyID{Kind: api.AdminNetworkPolicy, Name: "p"}, Rule: 3}
	made := func() *generated {
		return &generated{rules: renderer.NewRuleList([]api.ContivRule{{}}, nil), refused: []refusal{{[]api.Origin{origin}, "too large"}}}
	}
	free := func(api.SetID) bool { return false }
	a, b := in.intern(finish(made()), free), in.intern(finish(made()), free)
	want := renderer.Unenforced{Origin: origin, Class: api.ClassLimit, Reason: "too large"}
	said := in.unenforced()
	if len(said) != 1 || said[0] != want {
		t.Errorf("reported is %v", said)
	}
	in.releaseList(a)
	if again := in.unenforced(); len(again) != 1 || &again[0] != &said[0] {
		t.Errorf("another slice, though nothing changed: %v", again)
	}
	in.releaseList(b)
	if said := in.unenforced(); len(said) != 0 {
		t.Errorf("reported is %v, of a list that is gone", said)
	}
}
