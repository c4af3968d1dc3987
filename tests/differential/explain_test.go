package differential

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/explain/reason"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/harness"
	"github.com/sluice-net/sluice/tests/harness/backends"
)

const flowsExplained = 600

// TestExplanations asks the renderers of all nodes what they do with a flow and why,
// and compares the verdict and the policies that are named with the oracle's.
func TestExplanations(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		t.Parallel()
		explained := 0
		rapid.Check(t, func(t *rapid.T) {
			d := draw(t, kind, World{Config: cluster.Small()})
			defer closing(t, d.machine.Close)
			f := d.machine.fleet
			if !f.Explains() {
				return
			}
			for flow := range flowsOf(d.machine.State(), flowsExplained, d.seed) {
				if flow.Src == flow.Dst || !f.Sees(flow) {
					continue // meets no table
				}
				explained++
				if why := misexplained(d.oracle.Verdict(flow), f.Explain(flow)); why != "" {
					t.Fatalf("%s: %s\n%v\n%s\n%s", flow, why, f.Explain(flow), reason.Of(d.oracle.Verdict(flow)), harness.Manifests(d.machine.State()))
				}
			}
		})
		if kind.Name == "acl" && explained == 0 {
			t.Error("nothing was explained")
		}
	})
}

// misexplained compares decisions with a verdict. Whoever is said to deny must deny
// according to the oracle, or have passed the flow on to what does. Of the rules that
// are said to permit one must be a reason: a rule can stand for more than what this
// flow needs, and a pod that is open in effect has no table that could name one.
func misexplained(v oracle.Verdict, decisions []renderer.Decision) string {
	allowed := true
	var named []api.Origin
	for _, d := range decisions {
		if d.Action == api.Deny {
			allowed = false
			if len(d.Origins) == 0 {
				return "a denial has no reason"
			}
		}
		if (d.Action == api.Permit) == v.Allowed {
			named = append(named, d.Origins...)
		}
	}
	if allowed != v.Allowed {
		return fmt.Sprintf("explained as %t, but is %t", allowed, v.Allowed)
	}
	if isExempt(v) {
		return "" // whatever rule lets the node through, it is not for its policy's sake
	}
	deciding, passed := reasons(v)
	isReason := func(g api.Origin) bool { return slices.Contains(deciding, g) || slices.Contains(passed, g) }
	isDeciding := func(g api.Origin) bool { return slices.Contains(deciding, g) }
	switch wrong := slices.IndexFunc(named, func(g api.Origin) bool { return !isReason(g) }); {
	case v.Allowed && len(named) > 0 && len(deciding) > 0 && !slices.ContainsFunc(named, isReason):
		return fmt.Sprintf("none of %v allows it", named)
	case !v.Allowed && wrong >= 0:
		return fmt.Sprintf("%s is said to deny", named[wrong])
	case !v.Allowed && !slices.ContainsFunc(named, isDeciding):
		return fmt.Sprintf("none of %v denies it", named)
	}
	return ""
}

// reasons returns the rules that decide according to the oracle, and those that passed
// the flow on to them, of both directions.
func reasons(v oracle.Verdict) (deciding, passed []api.Origin) {
	for _, d := range []oracle.DirectionVerdict{v.Egress, v.Ingress} {
		if d.Allowed == v.Allowed {
			deciding = append(deciding, d.Deciding...)
			passed = append(passed, d.PassedBy()...)
		}
	}
	return deciding, passed
}

// isExempt reports whether an end is permitted although it is isolated.
func isExempt(v oracle.Verdict) bool {
	return slices.ContainsFunc(slices.Concat(v.Egress.Subjects, v.Ingress.Subjects), func(r oracle.SubjectResult) bool {
		return r.Exempt != oracle.NotExempt
	})
}
