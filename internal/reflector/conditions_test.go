package reflector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/kube"
)

// clusterPolicy is a policy as the source has it, and its entry in the store at a revision.
func clusterPolicy(t *testing.T, name string, generation, revision int64) (kube.ClusterPolicy, model.Entry) {
	t.Helper()
	value := &model.ClusterPolicy{Name: name, Kind: model.ClusterPolicy_KIND_CLUSTER_NETWORK_POLICY}
	encoded, err := model.Encode(value)
	if err != nil {
		t.Fatal(err)
	}
	id, err := model.IDOf(value)
	if err != nil {
		t.Fatal(err)
	}
	return kube.ClusterPolicy{Name: name, UID: types.UID(name), Generation: generation, Value: value}, model.Entry{Key: model.Key(model.DefaultPrefix, id), Value: encoded, Revision: revision}
}

func at(node string, revision int64, unenforced ...view.UnenforcedPolicy) nodeReport {
	return nodeReport{node: node, status: view.NodeStatus{Node: node, Revision: revision, Following: true, Policies: unenforced}}
}

func TestConditionsSayHowManyNodesEnforce(t *testing.T) {
	guard, entry := clusterPolicy(t, "guard", 3, 100)
	other, _ := clusterPolicy(t, "guard", 4, 100)
	other.Value = &model.ClusterPolicy{Name: "guard", Priority: 7}
	partly := view.UnenforcedPolicy{Policy: api.PolicyID{Kind: api.ClusterNetworkPolicy, Name: "guard"}, Enforced: view.EnforcedPartly, Why: "spec.egress[0]: no"}
	broken := guard
	broken.Problems = []api.Problem{{Object: "ClusterNetworkPolicy guard", Field: "spec.ingress[0]", Reason: "want a peer"}, {Reason: "another"}}
	refused := broken
	refused.Refused = true
	audited, auditedEntry := guard, entry
	audited.Value = &model.ClusterPolicy{Name: "guard", Audit: true}
	auditedEntry.Value, _ = model.Encode(audited.Value)
	namesake := partly
	namesake.Policy.Kind = api.AdminNetworkPolicy
	const valid = "Accepted=True Valid"
	for name, tc := range map[string]struct {
		policy kube.ClusterPolicy
		stored model.Entry
		nodes  []nodeReport
		want   []string
	}{
		"all":                {guard, entry, []nodeReport{at("a", 100), at("b", 200)}, []string{valid, "Enforced=True AllNodes 2/2 nodes"}},
		"one is behind":      {guard, entry, []nodeReport{at("a", 100), at("b", 99)}, []string{valid, "Enforced=False SomeNodes 1/2 nodes; b: pending: is at revision 99"}},
		"one cannot":         {guard, entry, []nodeReport{at("a", 99), at("b", 100, partly)}, []string{valid, "Enforced=False SomeNodes 0/2 nodes; b: in part: spec.egress[0]: no"}},
		"a namesake cannot":  {guard, entry, []nodeReport{at("a", 100, namesake)}, []string{valid, "Enforced=True AllNodes 1/1 nodes"}},
		"in audit mode":      {audited, auditedEntry, []nodeReport{at("a", 100)}, []string{valid, "Enforced=False Audit the policy is in audit mode: it denies nothing"}},
		"one has no agent":   {guard, entry, []nodeReport{at("a", 99), {node: "c", err: errors.New("no agent reports on it")}, at("b", 100)}, []string{valid, "Enforced=False SomeNodes 1/3 nodes; c: unknown: no agent reports on it"}},
		"no node":            {guard, entry, nil, []string{valid, "Enforced=Unknown NoNodes"}},
		"not in the store":   {other, entry, []nodeReport{at("a", 100)}, []string{valid, "Enforced=Unknown Reflecting"}},
		"never in the store": {guard, model.Entry{}, []nodeReport{at("a", 100)}, []string{valid, "Enforced=Unknown Reflecting"}},
		"a part is invalid":  {broken, entry, []nodeReport{at("a", 100)}, []string{"Accepted=True PartlyValid spec.ingress[0]: want a peer (and 1 more)", "Enforced=True AllNodes 1/1 nodes"}},
		"refused":            {refused, entry, []nodeReport{at("a", 100)}, []string{"Accepted=False Invalid spec.ingress[0]: want a peer (and 1 more)", "Enforced=False NotAccepted what the policy may select is closed, or an older version of it is enforced"}},
	} {
		var got []string
		for _, c := range conditionsOf(tc.policy, tc.stored, tc.nodes) {
			text := fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)
			if c.Message != "" {
				text += " " + c.Message
			}
			if got = append(got, text); c.ObservedGeneration != tc.policy.Generation {
				t.Errorf("%s: %s is about generation %d", name, c.Type, c.ObservedGeneration)
			}
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestConditionsAreShort whatever a policy or a node says.
func TestConditionsAreShort(t *testing.T) {
	guard, entry := clusterPolicy(t, "guard", 1, 100)
	long := string(make([]byte, 1<<20))
	guard.Problems = []api.Problem{{Reason: long}}
	for _, c := range conditionsOf(guard, entry, []nodeReport{{node: "a", err: errors.New(long)}}) {
		if len(c.Message) > 2*longestReason {
			t.Errorf("the message of %s has %d bytes", c.Type, len(c.Message))
		}
	}
}

// fakePolicyAPI is an API server with policies that records what is written.
type fakePolicyAPI struct {
	policies []kube.ClusterPolicy
	changes  int
	has      map[types.UID][]metav1.Condition
	writes   int
	refuses  map[string]error // by policy
}

func (f *fakePolicyAPI) ClusterPolicies() ([]kube.ClusterPolicy, int) { return f.policies, f.changes }

func (f *fakePolicyAPI) Conditions(context.Context) (map[types.UID][]metav1.Condition, error) {
	all := maps.Clone(f.has)
	for _, p := range f.policies {
		all[p.UID] = f.has[p.UID] // also of one that has none
	}
	return all, nil
}

func (f *fakePolicyAPI) SetConditions(_ context.Context, p kube.ClusterPolicy, c []metav1.Condition) error {
	f.writes++
	if err := f.refuses[p.Name]; err != nil {
		return err
	}
	f.has[p.UID] = slices.Clone(c)
	return nil
}

// reporting returns a reporter over a real store with some policies and nodes, whose clock the test moves.
func reporting(t *testing.T, policies, nodes int) (p *reporter, f *fakePolicyAPI, pass func(time.Duration)) {
	t.Helper()
	r := unanswered(t)
	f = &fakePolicyAPI{has: map[types.UID][]metav1.Condition{}, refuses: map[string]error{}, changes: 1}
	now := time.Now()
	p = newReporter(r, f)
	p.now = func() time.Time { return now }
	for i := range policies {
		policy, entry := clusterPolicy(t, fmt.Sprint("p", i), 1, 0)
		f.policies = append(f.policies, policy)
		if err := r.store.Write(t.Context(), []model.Entry{entry}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range nodes {
		p.reports(t, i, true)
	}
	return p, f, func(d time.Duration) { now = now.Add(d) }
}

// reports has a node report that it enforces everything, or nothing.
func (p *reporter) reports(t *testing.T, i int, everything bool) {
	t.Helper()
	node := fmt.Sprint("node-", i)
	s := view.NodeStatus{Node: node, Following: true}
	if everything {
		_, revision, err := p.store.List(t.Context(), model.StatusRoot(model.DefaultPrefix))
		if err != nil {
			t.Fatal(err)
		}
		s.Revision = revision
	}
	value, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.store.Write(t.Context(), []model.Entry{{Key: model.StatusRoot(model.DefaultPrefix) + node, Value: value}}, nil); err != nil {
		t.Fatal(err)
	}
}

func (p *reporter) must(t *testing.T) {
	t.Helper()
	if err := p.report(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestReporterWritesWhatChanged(t *testing.T) {
	p, f, pass := reporting(t, 3, 2)
	p.must(t)
	if f.writes != 3 || f.has["p1"][1].Status != metav1.ConditionTrue {
		t.Fatalf("%d writes at first: %v", f.writes, f.has)
	}
	for range 60 {
		pass(time.Second)
		p.must(t)
	}
	if f.writes != 3 {
		t.Errorf("%d writes of what did not change", f.writes-3)
	}
	began := f.has["p1"][1].LastTransitionTime
	p.reports(t, 2, false) // a node that enforces nothing yet
	p.must(t)
	if c := f.has["p1"][1]; f.writes != 6 || c.Status != metav1.ConditionFalse || c.LastTransitionTime == began || f.has["p1"][0].LastTransitionTime != began {
		t.Errorf("%d writes after a node came: %v", f.writes, f.has["p1"])
	}
	p = newReporter(p.Reflector, f) // another leader
	p.must(t)
	if f.writes != 6 {
		t.Errorf("another leader wrote %d times what the first one had written", f.writes-6)
	}
}

// TestReporterWritesSeldomInChurn of 1000 nodes: the numbers change all the time.
func TestReporterWritesSeldomInChurn(t *testing.T) {
	p, f, pass := reporting(t, 5, 20)
	p.must(t)
	before := f.writes
	const seconds = 600
	for i := range seconds {
		p.reports(t, i%20, i%3 > 0)
		pass(time.Second)
		p.must(t)
	}
	if n := f.writes - before; n > seconds/2+reportBurst || n < 5 {
		t.Errorf("%d writes in %d s of changes", n, seconds)
	}
	for i := range 20 {
		p.reports(t, i, true)
	}
	for range 120 {
		pass(time.Second)
		p.must(t)
	}
	for name, c := range f.has {
		if c[1].Status != metav1.ConditionTrue {
			t.Errorf("in the end %s has %v", name, c[1])
		}
	}
}

func TestReporterIsQuietWithoutRights(t *testing.T) {
	p, f, pass := reporting(t, 2, 1)
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "clusternetworkpolicies"}, "p0", errors.New("no"))
	f.refuses["p0"], f.refuses["p1"] = no, no
	if err := p.report(t.Context()); err == nil {
		t.Error("it does not say that it has no rights")
	}
	for range 110 {
		pass(time.Second)
		_ = p.report(t.Context()) // it says so again where it tried again
	}
	if f.writes != 4 {
		t.Errorf("%d writes without rights in two minutes, want 2 for each policy", f.writes)
	}
	clear(f.refuses)
	pass(refusedFor)
	p.must(t)
	if len(f.has) != 2 {
		t.Errorf("with rights again it has written %v", f.has)
	}
}

// TestReporterTellsPoliciesOfOneNameApart: one that is deleted and made anew has no conditions.
func TestReporterTellsPoliciesOfOneNameApart(t *testing.T) {
	p, f, pass := reporting(t, 1, 1)
	p.must(t)
	f.policies[0].UID, f.changes = "another", 2
	pass(time.Second)
	p.must(t)
	if got := f.has["another"]; f.writes != 2 || len(got) != 2 {
		t.Errorf("the new policy has %v", got)
	}
}

// TestReporterWritesFalseFirst: what says that it is enforced, and is not, waits for no other.
func TestReporterWritesFalseFirst(t *testing.T) {
	p, f, pass := reporting(t, 300, 2)
	for range 2000 {
		p.must(t)
		pass(time.Second)
	}
	p.reports(t, 2, false)
	p.must(t)
	for uid, c := range f.has {
		if c[1].Status == metav1.ConditionTrue {
			t.Fatalf("%s is still said to be enforced", uid)
		}
	}
}

// TestReporterPassesOverRefusedPolicy: a webhook that refuses one keeps none of the others back.
func TestReporterPassesOverRefusedPolicy(t *testing.T) {
	p, f, pass := reporting(t, 5, 1)
	f.refuses["p0"] = apierrors.NewForbidden(schema.GroupResource{Resource: "clusternetworkpolicies"}, "p0", errors.New("a webhook"))
	for range 3 * int(refusedFor/time.Second) {
		_ = p.report(t.Context()) // it says so
		pass(time.Second)
	}
	if len(f.has) != 4 || f.writes > 4+3 {
		t.Errorf("%d of 4 others are written, with %d writes", len(f.has), f.writes)
	}
	p.reports(t, 1, false) // while the one alone is tried again and again
	if _ = p.report(t.Context()); f.has["p1"][1].Status != metav1.ConditionFalse {
		t.Error("another policy is still said to be enforced")
	}
}

// TestReporterCorrectsWhatAnotherWrote, as a replica does that no longer leads.
func TestReporterCorrectsWhatAnotherWrote(t *testing.T) {
	p, f, pass := reporting(t, 1, 1)
	p.must(t)
	was := f.has["p0"]
	p.reports(t, 1, false)
	p.must(t)
	f.has["p0"] = was
	for range int(lookEvery/time.Second) + 1 {
		pass(time.Second)
		p.must(t)
	}
	if f.has["p0"][1].Status != metav1.ConditionFalse {
		t.Error("what another replica wrote stays")
	}
}
