package cache

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// diary records the notifications that a watcher receives.
type diary struct{ lines []string }

func (d *diary) note(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) NamespaceChanged(name string, old, new intent.Labels) {
	d.note("namespace %s %v -> %v", name, old, new)
}
func (d *diary) GroupAdded(_ intent.GroupID, g *intent.Group) {
	d.note("group %s{%s} added", g.Namespace, g.Labels)
}
func (d *diary) GroupRemoved(intent.GroupID)     { d.note("group removed") }
func (d *diary) PodChanged(old, new *intent.Pod) { d.note("pod %s -> %s", podText(old), podText(new)) }
func (d *diary) PolicyChanged(old, new *intent.Policy) {
	d.note("policy %t -> %t", old != nil, new != nil)
}

func (d *diary) NodeChanged(old, new *intent.Node) {
	d.note("node %t -> %t", old != nil, new != nil)
}

func podText(p *intent.Pod) string {
	if p == nil {
		return "none"
	}
	s := fmt.Sprintf("%s%v@%s", p.ID, p.IPs, p.Node)
	if p.Shared {
		s += " shared"
	}
	return s
}

func (d *diary) take() []string {
	l := d.lines
	d.lines = nil
	return l
}

func lbls(kvs ...string) (out []*model.Label) {
	for _, kv := range kvs {
		k, v, _ := strings.Cut(kv, "=")
		out = append(out, &model.Label{Key: k, Value: v})
	}
	return out
}

func changes(ms ...proto.Message) (ch model.Changes) {
	for _, m := range ms {
		id, err := model.IDOf(m)
		if err != nil {
			panic(err)
		}
		ch.Deltas = append(ch.Deltas, model.Delta{ID: id, Value: m})
	}
	return ch
}

func onePod(name, ip string, kvs ...string) *model.Pod {
	p := &model.Pod{Namespace: "n", Name: name, Labels: lbls(kvs...), NodeName: "x"}
	if ip != "" {
		p.Ips = []string{ip}
	}
	return p
}

func TestWatcherGetsDifferencesOnly(t *testing.T) {
	c, d := New(), &diary{}
	step := func(name string, ch model.Changes, want ...string) {
		t.Helper()
		c.Update(ch, d)
		if diff := cmp.Diff(want, d.take()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	step("a pod without an address", changes(onePod("p", "", "a=1")), "group n{a=1} added", "pod none -> n/p[]@x")
	step("the address arrives", changes(onePod("p", "1.1.1.1", "a=1")), "pod n/p[]@x -> n/p[1.1.1.1]@x")
	running := onePod("p", "1.1.1.1", "a=1")
	running.Phase, running.Deleting = model.Pod_PHASE_RUNNING, true
	step("what policy does not look at", changes(running))
	step("an address that is taken", changes(onePod("q", "1.1.1.1", "a=1")), "pod none -> n/q[1.1.1.1]@x shared")
	step("another group", changes(onePod("q", "1.1.1.1", "a=2")), "group n{a=2} added", "pod n/q[1.1.1.1]@x -> n/q[1.1.1.1]@x")
	host := onePod("q", "1.1.1.1", "a=2")
	host.HostNetwork = true
	step("a pod of the host network", changes(host), "pod n/q[1.1.1.1]@x -> none", "group removed")
	step("a namespace", changes(&model.Namespace{Name: "n"}), "namespace n  -> "+nameLabel+"=n")
	policy := &model.NetworkPolicy{Namespace: "n", Name: "p", IsolatesIngress: true}
	step("a policy", changes(policy), "policy false -> true")
	admin := onePolicy("a", 1, "app=1")
	step("a policy of the cluster", changes(admin), "policy false -> true")
	node := &model.Node{Name: "x", Addresses: []string{"192.168.0.1"}}
	step("a node", changes(node), "node false -> true")
	step("a node without a change", changes(proto.CloneOf(node)))
	node = &model.Node{Name: "x", Labels: lbls("zone=1"), Addresses: []string{"192.168.0.1"}}
	step("another label of a node", changes(node), "node true -> true")
	same := changes(running, host, &model.Namespace{Name: "n"}, proto.CloneOf(policy), proto.CloneOf(admin), proto.CloneOf(node))
	step("the same again", same)
	same.Resync = true
	step("the same as a resync", same)
	step("an empty resync", model.Changes{Resync: true},
		"policy true -> false", "policy true -> false", "node true -> false", "pod n/p[1.1.1.1]@x -> none", "group removed", "namespace n "+nameLabel+"=n -> ")
	if len(c.namespaces.byName)+len(c.policies.selectors.byText)+c.policies.selectors.rules.index.n+c.pods.index.n+c.pods.byAddr.n+c.groups.index.n+c.pods.hosts.index.n+len(c.groups.byPort)+
		len(c.policies.cluster)+len(c.policies.subjects.scopes)+c.policies.subjects.index.Len()+len(c.nodes) != 0 {
		t.Errorf("left over: %+v", c)
	}
}

func TestUpdateIgnoresInvalidObjects(t *testing.T) {
	c, d := New(), &diary{}
	c.Update(changes(onePod("p", "1.1.1.1")), d)
	d.take()
	bad := model.Changes{Resync: true, Deltas: []model.Delta{
		{ID: model.ID{Kind: model.KindPod, Namespace: "n", Name: "p"}, Value: &model.Namespace{Name: "p"}},
		{ID: model.ID{Kind: "gadget", Name: "g"}},
		{ID: model.ID{Kind: model.KindPod, Name: "p"}, Value: &model.Pod{Name: "p"}},
	}}
	if found := c.Update(bad, d); len(found) != 3 || len(c.Problems()) != 3 || len(d.take()) != 0 {
		t.Errorf("found %v", found)
	}
	if found := c.Update(bad, d); len(found) != 0 {
		t.Errorf("reported twice: %v", found)
	}
	c.Update(model.Changes{Resync: true}, d)
	if len(c.Problems()) != 0 {
		t.Errorf("left over: %v", c.Problems())
	}
}

func TestParserLeavesOutInvalidAddressesAndPorts(t *testing.T) {
	c := New()
	p := onePod("p", "1.1.1.1")
	p.Ips = append(p.Ips, "nonsense", "fe80::1%eth0", "::ffff:2.2.2.2", "1.1.1.1")
	p.NamedPorts = []*model.Pod_NamedPort{{Name: "web", Port: 80}, {Name: "big", Port: 70000}, {Port: 1}, {Name: "odd", Port: 1, Protocol: 9}}
	if found := c.Update(changes(p), &diary{}); len(found) != 2 {
		t.Errorf("found %v", found)
	}
	want := []PodInfo{{
		ID: api.PodID{Namespace: "n", Name: "p"}, State: "live", Node: "x",
		IPs:        []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("2.2.2.2")},
		NamedPorts: []api.NamedPort{{PortName: api.PortName{Protocol: api.TCP, Name: "web"}, Number: 80}},
	}}
	eq := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, c.Pods(), eq); diff != "" {
		t.Error(diff)
	}
}

// TestCacheLeavesOutUnusableAddresses: a writer of the store claims an address of a node, or
// one whose meaning differs from host to host.
func TestCacheLeavesOutUnusableAddresses(t *testing.T) {
	c := New()
	p := onePod("p", "1.1.1.1")
	p.NodeIps = []string{"::ffff:192.168.0.1", "fd00::1"}
	p.Ips = append(p.Ips, "127.0.0.1", "::ffff:127.0.0.2", "169.254.1.1", "224.0.0.1", "255.255.255.255", "::1", "fe80::1", "ff02::1", "192.168.0.1", "fd00::1")
	found := c.Update(changes(p), &diary{})
	if len(found) != 1 || found[0].Object != "Pod n/p" || found[0].Field != "status.podIPs" || !strings.Contains(found[0].Reason, `cannot be addresses of a pod and left out: "127.0.0.1"`) {
		t.Errorf("found %v", found)
	}
	if pods := c.Pods(); len(pods) != 1 || !slices.Equal(pods[0].IPs, []netip.Addr{netip.MustParseAddr("1.1.1.1")}) {
		t.Errorf("pods are %+v", pods)
	}
	p.NodeIps = []string{"192.168.0.9"} // the node has another address now
	c.Update(changes(p), &diary{})
	if pods := c.Pods(); len(pods) != 1 || len(pods[0].IPs) != 3 {
		t.Errorf("pods are %+v", pods)
	}
	p.HostNetwork = true
	if found := c.Update(changes(p), &diary{}); len(found) != 0 || len(c.Problems()) != 0 {
		t.Errorf("of a pod in the host network it finds %v", found)
	}
}

// Compares queries with full scans while objects come and go.
func TestMatchGroupsAgreesWithScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, r := New(), lcg(rapid.Uint64().Draw(t, "seed"))
		for range 6 {
			for range 60 {
				c.Update(randomChange(&r), &diary{})
			}
			for range 10 {
				q := randomQuery(&r)
				got := slices.Sorted(maps.Keys(maps.Collect(c.MatchGroups(q))))
				if want := c.scan(q); !slices.Equal(got, want) {
					t.Fatalf("%+v: got %v, want %v", q, got, want)
				}
			}
			c.checkGroups(t)
		}
	})
}

// lcg is a small generator; rapid's draws would be too many here.
type lcg uint64

func (l *lcg) n(k int) int {
	*l = *l*6364136223846793005 + 1442695040888963407
	return int(uint64(*l)>>33) % k
}

func randomChange(r *lcg) model.Changes {
	n := fmt.Sprintf("n%d", r.n(3))
	switch r.n(9) {
	case 2:
		m := onePolicy(fmt.Sprint(r.n(40)), uint32(r.n(3)), "")
		m.Subject.Pods, m.Subject.Namespaces = randomSelector(r), &model.LabelSelector{}
		if r.n(4) > 0 {
			m.Subject.Namespaces.MatchLabels = lbls(fmt.Sprintf("env=%d", r.n(3)))
		}
		ch := changes(m)
		if r.n(3) == 0 {
			ch.Deltas[0].Value = nil
		}
		return ch
	case 0:
		m := &model.Namespace{Name: n, Labels: lbls(fmt.Sprintf("env=%d", r.n(3)))}
		ch := changes(m)
		if r.n(3) == 0 {
			ch.Deltas[0].Value = nil
		}
		return ch
	case 1:
		ch := changes(&model.NetworkPolicy{Namespace: n, Name: fmt.Sprint(r.n(60)), IsolatesIngress: true, PodSelector: randomSelector(r)})
		if r.n(3) == 0 {
			ch.Deltas[0].Value = nil
		}
		return ch
	}
	p := &model.Pod{Namespace: n, Name: fmt.Sprint(r.n(150)), Labels: lbls(fmt.Sprintf("app=%d", r.n(50))), Ips: []string{fmt.Sprintf("10.0.0.%d", 1+r.n(100))}}
	if r.n(2) == 0 {
		p.Labels = append(p.Labels, &model.Label{Key: "tier", Value: fmt.Sprint(r.n(3))})
	}
	if r.n(2) == 0 {
		p.NamedPorts = []*model.Pod_NamedPort{{Name: "web", Port: 80}}
	}
	ch := changes(p)
	if r.n(3) == 0 {
		ch.Deltas[0].Value = nil
	}
	return ch
}

// onePolicy is for the pods with a label, "" for any, of every namespace.
func onePolicy(name string, priority uint32, label string) *model.ClusterPolicy {
	m := &model.ClusterPolicy{
		Kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, Name: name, Tier: model.ClusterPolicy_TIER_ADMIN, Priority: priority,
		Subject: &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}, Pods: &model.LabelSelector{}},
	}
	if label != "" {
		m.Subject.Pods.MatchLabels = lbls(label)
	}
	return m
}

func randomSelector(r *lcg) *model.LabelSelector {
	s := &model.LabelSelector{}
	if r.n(2) == 0 {
		s.MatchLabels = lbls(fmt.Sprintf("app=%d", r.n(50)))
	}
	switch op := model.LabelSelector_Operator(1 + r.n(4)); op {
	case model.LabelSelector_OPERATOR_IN, model.LabelSelector_OPERATOR_NOT_IN:
		s.MatchExpressions = []*model.LabelSelector_Requirement{{Key: "tier", Operator: op, Values: []string{"0", "1"}}}
	default:
		if r.n(2) == 0 {
			s.MatchExpressions = []*model.LabelSelector_Requirement{{Key: "tier", Operator: op}}
		}
	}
	return s
}

func randomQuery(r *lcg) intent.GroupQuery {
	table := newSelectorTable()
	q := intent.GroupQuery{}
	q.Pods, _ = table.acquire(randomSelector(r))
	switch r.n(3) {
	case 0:
		q.Namespace = fmt.Sprintf("n%d", r.n(3))
	case 1:
		s := [][]*model.Label{nil, lbls("env=1"), lbls(nameLabel + "=n1")}[r.n(3)]
		q.Namespaces, _ = table.acquire(&model.LabelSelector{MatchLabels: s})
	}
	if r.n(2) == 0 {
		q.Port = api.PortName{Protocol: api.TCP, Name: "web"}
	}
	return q
}

func (c *Cache) scan(q intent.GroupQuery) (ids []intent.GroupID) {
	for i, g := range c.groups.list {
		if g.def == nil || !q.Pods.Matches(g.def.Labels) || q.Port != (api.PortName{}) && !g.def.Has(q.Port) {
			continue
		}
		l := c.namespaces.list[g.ns].labels
		if q.Namespace != "" && q.Namespace != g.def.Namespace ||
			q.Namespace == "" && q.Namespaces != nil && (l == nil || !q.Namespaces.Matches(l)) {
			continue
		}
		ids = append(ids, intent.GroupID(i))
	}
	return ids
}

// checkGroups checks pods, groups, policies and addresses against each other.
func (c *Cache) checkGroups(t *rapid.T) {
	holders := map[netip.Addr]int{}
	for id, g := range c.groups.list {
		if g.def == nil {
			continue
		}
		addrs := c.AppendAddresses(nil, intent.GroupID(id))
		if len(g.pods) == 0 || len(addrs) != len(c.PodsOf(intent.GroupID(id))) {
			t.Fatalf("group %d: %d pods, %d addresses", id, len(g.pods), len(addrs))
		}
		for _, a := range addrs {
			holders[a]++
		}
		var want []*intent.Policy
		for _, spec := range c.PolicySpecs() {
			l := c.namespaces.list[g.ns].labels
			in := spec.ID.Namespace == g.def.Namespace
			if spec.SubjectNamespaces != nil {
				in = l != nil && spec.SubjectNamespaces.Matches(l)
			}
			if in && spec.Subject.Matches(g.def.Labels) {
				want = append(want, spec)
			}
		}
		if got := c.Policies(intent.GroupID(id)); !slices.Equal(got, want) {
			t.Fatalf("group %d: policies %v, want %v", id, got, want)
		}
	}
	for a, n := range holders {
		if got := len(c.Holders(a)); got != n {
			t.Fatalf("%s: %d holders, want %d", a, got, n)
		}
	}
	live := 0
	for _, p := range c.Pods() {
		if p.State == "live" {
			live += len(p.IPs)
		}
	}
	if live != c.pods.byAddr.n {
		t.Fatalf("%d addresses are indexed, want %d", c.pods.byAddr.n, live)
	}
}

func TestMatchNamespaces(t *testing.T) {
	c := New()
	c.Update(changes(&model.Namespace{Name: "b", Labels: lbls("x=1")}, &model.Namespace{Name: "a", Labels: lbls("x=2")}, onePod("p", "1.1.1.1")), &diary{})
	table := newSelectorTable()
	for _, tt := range []struct {
		sel  *model.LabelSelector
		want []string
	}{
		{&model.LabelSelector{}, []string{"a", "b"}}, // not n: it is not known
		{&model.LabelSelector{MatchLabels: lbls("x=1")}, []string{"b"}},
		{&model.LabelSelector{MatchLabels: lbls(nameLabel + "=a")}, []string{"a"}},
		{&model.LabelSelector{MatchLabels: lbls(nameLabel + "=n")}, nil},
		{&model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: nameLabel, Operator: 3}}}, []string{"a", "b"}},
		{&model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: "x", Operator: 2, Values: []string{"1"}}}}, []string{"a"}},
	} {
		sel, err := table.acquire(tt.sel)
		if got := c.MatchNamespaces(sel); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v %v, want %v", sel, got, err, tt.want)
		}
	}
	info := c.Namespaces()
	if len(info) != 3 || info[2].Known || info[2].Pods != 1 || !info[0].Known {
		t.Errorf("%+v", info)
	}
}

// TestPoliciesShareRules: policies with equal rules have one list of them, and each that changes or
// goes leaves it to the others.
func TestPoliciesShareRules(t *testing.T) {
	c := New()
	policy := func(name string, port uint32, except ...string) model.Delta {
		rule := &model.NetworkPolicy_Rule{
			Peers: []*model.NetworkPolicy_Peer{{PodSelector: &model.LabelSelector{MatchLabels: []*model.Label{{Key: "a", Value: "b"}}}}, {IpBlock: &model.NetworkPolicy_IPBlock{Cidr: "10.0.0.0/8", Except: except}}},
			Ports: []*model.NetworkPolicy_Port{{Port: &model.NetworkPolicy_Port_Number{Number: port}}},
		}
		return model.Delta{ID: model.ID{Kind: model.KindNetworkPolicy, Namespace: "n", Name: name}, Value: &model.NetworkPolicy{
			Namespace: "n", Name: name, PodSelector: &model.LabelSelector{}, IsolatesIngress: true, Ingress: []*model.NetworkPolicy_Rule{rule},
		}}
	}
	update := func(deltas ...model.Delta) {
		c.Update(model.Changes{Deltas: deltas}, &diary{})
	}
	rules := func() map[*intent.Rule]int {
		lists := map[*intent.Rule]int{}
		for _, p := range c.PolicySpecs() {
			lists[&p.Ingress[0]]++
		}
		return lists
	}
	update(policy("a", 80), policy("b", 80), policy("c", 81), policy("d", 80, "10.1.0.0/16"))
	if n := len(rules()); n != 3 || c.policies.selectors.rules.index.n != 3 {
		t.Fatalf("4 policies have %d lists of rules, want 3", n)
	}
	update(policy("a", 81))
	if n := len(rules()); n != 3 {
		t.Fatalf("%d lists of rules, want 3", n)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		update(model.Delta{ID: policy(name, 0).ID})
	}
	if n := c.policies.selectors.rules.index.n; n != 0 {
		t.Errorf("%d lists of rules are left", n)
	}
}
