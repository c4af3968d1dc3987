package ligato

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy"
)

func shop(t testing.TB) []model.Delta {
	return []model.Delta{
		put(t, &model.Namespace{Name: "shop"}), put(t, pod("web-0", "web")), put(t, pod("web-1", "web")), put(t, pod("db", "db")), put(t, pod("open", "open")),
		put(t, remote(1)), put(t, allow("web", 80)), put(t, allow("db", 5432)),
		put(t, &model.NetworkPolicy{Namespace: "shop", Name: "silent", PodSelector: &model.LabelSelector{MatchLabels: labels("db")}, IsolatesEgress: true}),
	}
}

func TestPolicyIsEnforcedThroughKVScheduler(t *testing.T) {
	r := newRig(t)
	r.tell(true, shop(t)...)
	r.want("10.9.0.1", "web-0", 80, api.Permit)
	r.want("10.9.0.1", "web-0", 81, api.Deny)
	r.want("open", "web-1", 80, api.Deny)
	r.want("10.9.0.1", "open", 22, api.Permit)
	r.want("db", "192.0.2.1", 443, api.Deny)
	r.want("db", "open", 443, api.Deny)
	r.want("web-0", "192.0.2.1", 443, api.Permit)

	r.tell(false, put(t, remote(2)), gone(t, remote(1)))
	r.want("10.9.0.1", "web-0", 80, api.Deny)
	r.want("10.9.0.2", "web-1", 80, api.Permit)

	r.tell(false, gone(t, allow("web", 80)))
	r.want("open", "web-1", 80, api.Permit)
	r.tell(true, put(t, &model.Namespace{Name: "shop"}))
	if acls := r.sw.ACLs(); len(acls) != 0 {
		t.Errorf("without pods there are still ACLs: %v", acls)
	}
}

// TestSchedulerKeepsOrderOfRenderer: within a key the scheduler takes interfaces away,
// then changes rules, then adds interfaces; and it takes keys in the order of writing.
func TestSchedulerKeepsOrderOfRenderer(t *testing.T) {
	r := newRig(t)
	shared := pod("web-1", "web")
	r.tell(true, shop(t)[:7]...) // web-0 and web-1 share a table; nothing else is restricted
	if got, want := r.conf.take(), []string{
		"create sluice-reflect", "bind sluice-reflect ingress tap-web-0", "bind sluice-reflect ingress tap-web-1",
		"create sluice-table-1", "bind sluice-table-1 egress tap-web-0", "bind sluice-table-1 egress tap-web-1",
	}; !slices.Equal(sorted(got), sorted(want)) || got[0] != want[0] || got[3] != want[3] {
		t.Fatalf("at first: %q", got)
	}
	// In one event web-1 leaves the table, its rules change, and open joins it.
	shared.Labels = labels("other")
	join := pod("open", "web")
	r.tell(false, put(t, shared), put(t, join), put(t, allow("web", 81)))
	want := []string{
		"bind sluice-reflect ingress tap-open",
		"unbind sluice-table-1 egress tap-web-1", "update sluice-table-1", "bind sluice-table-1 egress tap-open",
		"unbind sluice-reflect ingress tap-web-1",
	}
	if d := cmp.Diff(want, r.conf.take()); d != "" {
		t.Errorf("(-want +done)\n%s", d)
	}
	// Afterwards an event that only moves an interface makes before it breaks.
	r.tell(false, put(t, allow("other", 7)))
	r.conf.take()
	r.tell(false, put(t, pod("open", "other")))
	want = []string{"bind sluice-table-2 egress tap-open", "unbind sluice-table-1 egress tap-open"}
	if d := cmp.Diff(want, r.conf.take()); d != "" {
		t.Errorf("(-want +done)\n%s", d)
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestAgentClosesPlugin(t *testing.T) {
	r := newRig(t)
	r.tell(true, shop(t)...)
	if err := r.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.policy.Apply(context.Background(), model.Changes{}); !errors.Is(err, policy.ErrNotRunning) {
		t.Errorf("after the agent has stopped: %v", err)
	}
	r.want("open", "web-1", 80, api.Deny) // what is enforced stays
}
