package cli

import (
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

func TestGetPoliciesShowsEnforcementInOneCell(t *testing.T) {
	problem := api.Problem{Object: "NetworkPolicy a/b", Field: "spec.ingress[0].ports", Class: api.ClassNamedPort, Reason: "no pod has it"}
	for want, p := range map[string]view.Policy{
		"yes": {Enforced: view.EnforcedFully, Notes: []api.Problem{problem}},
		"-":   {}, // an agent that does not say
		"in part: spec.ingress[0].ports: no pod has it":              {Enforced: view.EnforcedPartly, Problems: []api.Problem{problem}},
		"in part: spec.ingress[0].ports: no pod has it (and 1 more)": {Enforced: view.EnforcedPartly, Problems: []api.Problem{problem, problem}},
		"pending: it rains": {Enforced: view.EnforcedPending, Pending: "it rains", Problems: []api.Problem{problem}},
	} {
		if got := enforced(p); got.Text != want {
			t.Errorf("%q, want %q", got.Text, want)
		}
	}
}
