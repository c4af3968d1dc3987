package processor

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/cache"
)

// quiet is a sink that keeps the lists.
type quiet map[api.PodID][]*api.ContivPolicy

func (quiet) UpdateSet(api.SetID, []netip.Prefix, []netip.Prefix) {}
func (q quiet) Configure(id api.PodID, _ []netip.Addr, list []*api.ContivPolicy, _ []api.Sharing) {
	q[id] = list
}
func (q quiet) Remove(id api.PodID) { delete(q, id) }

func TestSetsOfTakenIDMatchNothing(t *testing.T) {
	c := cache.New()
	p := newProcessor(c, Options{}, func(string) api.SetID { return 4711 })
	sink := quiet{}
	peer := func(app string) *model.NetworkPolicy_Rule {
		return &model.NetworkPolicy_Rule{Peers: []*model.NetworkPolicy_Peer{{PodSelector: &model.LabelSelector{
			MatchLabels: []*model.Label{{Key: "app", Value: app}}}}}}
	}
	id := model.ID{Kind: model.KindPod, Namespace: "n", Name: "a"}
	policy := model.ID{Kind: model.KindNetworkPolicy, Namespace: "n", Name: "p"}
	update := func(rules ...*model.NetworkPolicy_Rule) []api.Problem {
		c.Update(model.Changes{Deltas: []model.Delta{
			{ID: id, Value: &model.Pod{Namespace: "n", Name: "a", Ips: []string{"10.0.0.1"}}},
			{ID: policy, Value: &model.NetworkPolicy{Namespace: "n", Name: "p", IsolatesIngress: true, Ingress: rules}},
		}}, p)
		return p.Flush(sink)
	}
	found := update(peer("x"), peer("y"))
	list := sink[api.PodID{Namespace: "n", Name: "a"}]
	if len(list) != 1 || len(list[0].Ingress) != 1 || list[0].Ingress[0].Index != 0 {
		t.Fatalf("the second rule must be left out: %+v", list)
	}
	if len(found) != 1 || len(p.Problems()) != 1 {
		t.Errorf("problems: %v", found)
	}
	update(peer("y"))
	update(peer("x"))
	if n := len(p.Problems()); n != 0 {
		t.Errorf("%d problems are left", n)
	}
}

func TestPortNamesLeaveNothing(t *testing.T) {
	c := cache.New()
	p := New(c, Options{})
	sink := quiet{}
	named := func(app string, ports ...string) *model.NetworkPolicy {
		r := &model.NetworkPolicy_Rule{Peers: []*model.NetworkPolicy_Peer{{PodSelector: &model.LabelSelector{MatchLabels: []*model.Label{{Key: "app", Value: app}}}}}}
		for _, name := range ports {
			r.Ports = append(r.Ports, &model.NetworkPolicy_Port{Port: &model.NetworkPolicy_Port_Name{Name: name}})
		}
		rules := []*model.NetworkPolicy_Rule{r}
		return &model.NetworkPolicy{Namespace: "n", Name: "p", PodSelector: &model.LabelSelector{}, IsolatesIngress: true, IsolatesEgress: true, Ingress: rules, Egress: rules}
	}
	id := model.ID{Kind: model.KindNetworkPolicy, Namespace: "n", Name: "p"}
	put := func(resync bool, deltas ...model.Delta) {
		c.Update(model.Changes{Resync: resync, Deltas: deltas}, p)
		p.Flush(sink)
	}
	pod := func(name, ip string, number uint32) model.Delta {
		return model.Delta{ID: model.ID{Kind: model.KindPod, Namespace: "n", Name: name}, Value: &model.Pod{
			Namespace: "n", Name: name, Ips: []string{ip}, NamedPorts: []*model.Pod_NamedPort{{Name: name, Port: number}}}}
	}
	put(false, pod("a", "10.0.0.1", 80), model.Delta{ID: id, Value: named("x", "a", "b")})
	if n := len(p.Problems()); n != 1 {
		t.Errorf("%d problems, want that of b in ingress: %v", n, p.Problems())
	}
	put(false, pod("b", "10.0.0.2", 80)) // equivalent to a, so the policy resolves as before
	if n := len(p.Problems()); n != 0 {
		t.Errorf("%d problems are left: %v", n, p.Problems())
	}
	put(false, model.Delta{ID: model.ID{Kind: model.KindPod, Namespace: "n", Name: "a"}})
	if n := len(p.Problems()); n != 1 {
		t.Errorf("%d problems, want that of a in ingress: %v", n, p.Problems())
	}
	for _, app := range []string{"x", "y", "x"} { // peers that the policy stops to name
		put(false, model.Delta{ID: id, Value: named(app, "b", "c")})
	}
	put(true)
	x := p.problems
	n := len(p.resolver.policies) + len(x.present) + len(x.names) + len(x.counted) + len(x.dirty)
	sets := reflect.ValueOf(p.sets).Elem()
	n += sets.FieldByName("selectors").Len() + sets.FieldByName("idle").Len() + sets.FieldByName("scopes").FieldByName("byKey").Len()
	if n != 0 {
		t.Errorf("left over: %d of %v %+v %v", n, p.resolver.policies, x, sets)
	}
}
