package nodestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
)

func TestOwnReportFitsIntoStore(t *testing.T) {
	const n = 300
	own := Own{
		Name: "node-1", Following: func() bool { return true },
		Status: func() policy.Status { return policy.Status{Unenforced: n} },
		Policies: func(context.Context) (out []view.Policy, err error) {
			for i := range n {
				out = append(out, view.Policy{
					Policy: api.PolicyID{Namespace: "shop", Name: fmt.Sprint(i)}, Enforced: view.EnforcedPending, Pending: strings.Repeat("<", 200),
				})
			}
			return out, nil
		},
	}
	s, err := own.report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 40<<10 || len(s.Policies) == 0 || len(s.Policies)+s.More != n {
		t.Errorf("a report has %d bytes, names %d policies, and has %d more", len(text), len(s.Policies), s.More)
	}
}
