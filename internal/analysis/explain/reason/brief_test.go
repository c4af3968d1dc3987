package reason

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// TestSidesNameNearestRule: the one with the fewest sides that fail, of equals the one whose
// peers match.
func TestSidesNameNearestRule(t *testing.T) {
	rule := func(index int, peer, port bool) oracle.RuleEval {
		return oracle.RuleEval{
			Index: index, PeerMatched: peer, PortMatched: port, Matched: peer && port,
			Peers: []oracle.TermEval{{Term: "from app=a", Matched: peer, Why: "it is b"}, {Term: "from app=c", Matched: peer, Why: "it is b"}},
			Ports: []oracle.TermEval{{Term: "port 1/tcp", Matched: port, Why: "the flow is 2/tcp"}},
		}
	}
	for want, rules := range map[string][]oracle.RuleEval{
		"": nil,
		"ingress rule 0 of a/p: neither a peer nor a port":                     {rule(0, false, false)},
		`ingress rule 1 of a/p: not "from app=a", as it is b (nor are 1 more)`: {rule(0, false, false), rule(1, false, true)},
		`ingress rule 2 of a/p: not "port 1/tcp", as the flow is 2/tcp`:        {rule(0, false, false), rule(1, false, true), rule(2, true, false)},
	} {
		d := end{oracle.DirectionVerdict{Direction: api.Ingress, Policies: []oracle.PolicyEval{{Policy: api.PolicyID{Namespace: "a", Name: "p"}, Rules: rules}}}}
		if got := d.nearest(); got != want {
			t.Errorf("nearest is %q, want %q", got, want)
		}
	}
}

// TestFixIsOneChange: a fix of an admin policy is for its owner to make; an allowed flow needs
// none.
func TestFixIsOneChange(t *testing.T) {
	o := oracle.New(oracle.State{})
	v := Explain(o, oracle.Endpoint{}, oracle.Endpoint{}, api.TCP, 1)
	if v.Allowed || v.Sides() != nil {
		t.Errorf("where there is no flow the sides are %v", v.Sides())
	}
	if d := cmp.Diff([]string{"no small change was found that would allow it"}, v.Fix()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	v.Allowed = true
	if f := v.Fix(); f != nil {
		t.Errorf("the fix of an allowed flow is %v", f)
	}
}
