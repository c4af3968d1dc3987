package processor_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/cache"
	"github.com/sluice-net/sluice/plugins/policy/internal/processor"
)

// tb is what rapid.T and testing.TB have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// recorder is a sink that records what it receives, and checks that it receives differences only.
type recorder struct {
	t     tb
	sets  map[api.SetID]map[netip.Addr]bool
	pods  map[api.PodID]configured
	calls int
}

type configured struct {
	ips    []netip.Addr
	list   []*api.ContivPolicy
	shared []api.Sharing
}

func newRecorder(t tb) *recorder {
	return &recorder{t: t, sets: map[api.SetID]map[netip.Addr]bool{}, pods: map[api.PodID]configured{}}
}

func (r *recorder) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	r.t.Helper()
	r.calls++
	set := r.sets[id]
	if set == nil {
		set = map[netip.Addr]bool{}
		r.sets[id] = set
	}
	if len(added)+len(removed) == 0 {
		r.t.Errorf("set %s: an update without a difference", id)
	}
	for _, list := range [][]netip.Prefix{added, removed} {
		if !slices.IsSortedFunc(list, netip.Prefix.Compare) {
			r.t.Errorf("set %s: not sorted: %v", id, list)
		}
		for _, p := range list {
			if !p.IsSingleIP() {
				r.t.Errorf("set %s: %s is not one address", id, p)
			}
		}
	}
	for _, p := range removed {
		if !set[p.Addr()] {
			r.t.Errorf("set %s: %s removed but is no member", id, p)
		}
		delete(set, p.Addr())
	}
	for _, p := range added {
		if set[p.Addr()] {
			r.t.Errorf("set %s: %s added but is a member", id, p)
		}
		set[p.Addr()] = true
	}
	if len(set) == 0 {
		delete(r.sets, id)
	}
}

func (r *recorder) Configure(pod api.PodID, ips []netip.Addr, list []*api.ContivPolicy, shared []api.Sharing) {
	r.t.Helper()
	r.calls++
	if old, ok := r.pods[pod]; ok && slices.Equal(old.ips, ips) && sameList(old.list, list) && slices.EqualFunc(old.shared, shared, api.Sharing.Equal) {
		r.t.Errorf("%s: configured as it was", pod)
	}
	if len(ips) == 0 {
		r.t.Errorf("%s: configured without an address", pod)
	}
	r.pods[pod] = configured{ips, list, shared}
}

func (r *recorder) Remove(pod api.PodID) {
	r.t.Helper()
	r.calls++
	if _, ok := r.pods[pod]; !ok {
		r.t.Errorf("%s: removed but was never configured", pod)
	}
	delete(r.pods, pod)
}

// describe returns everything the sink knows as text: equal knowledge, equal
// bytes. Lists that are one slice are marked with the pod that has it first.
func (r *recorder) describe() string {
	var b bytes.Buffer
	for _, id := range slices.Sorted(maps.Keys(r.sets)) {
		fmt.Fprintf(&b, "set %s %v\n", id, slices.SortedFunc(maps.Keys(r.sets[id]), netip.Addr.Compare))
	}
	first := map[**api.ContivPolicy]api.PodID{}
	for _, pod := range slices.SortedFunc(maps.Keys(r.pods), api.PodID.Compare) {
		c := r.pods[pod]
		fmt.Fprintf(&b, "pod %s %v", pod, c.ips)
		if len(c.list) > 0 {
			if _, ok := first[&c.list[0]]; !ok {
				first[&c.list[0]] = pod
			}
			fmt.Fprintf(&b, " list of %s", first[&c.list[0]])
		}
		for _, p := range c.list {
			fmt.Fprintf(&b, "\n  %+v", *p)
		}
		for _, s := range c.shared {
			fmt.Fprintf(&b, "\n  shared %s %t %s", s.Apart, s.Elsewhere, s.Node)
			for _, p := range s.Policies {
				fmt.Fprintf(&b, "\n    %+v", *p)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// allows reports whether the policies of a pod let traffic pass, for the pod's side
// of a connection.
// allows asks the policies of a pod, and of those that share its addresses.
func (r *recorder) allows(pod api.PodID, d api.Direction, peer netip.Addr, proto api.Protocol, port uint16) bool {
	c := r.pods[pod]
	for _, s := range c.shared {
		if (!s.Apart.IsValid() || !s.Apart.Contains(peer)) && !r.listAllows(s.Policies, d, peer, proto, port) {
			return false
		}
	}
	return r.listAllows(c.list, d, peer, proto, port)
}

func (r *recorder) listAllows(list []*api.ContivPolicy, d api.Direction, peer netip.Addr, proto api.Protocol, port uint16) bool {
	if v := r.tier(api.TierAdmin, list, d, peer, proto, port); v == allowed || v == denied {
		return v == allowed
	}
	isolated := false
	for _, p := range list {
		if p.Isolates(d) {
			isolated = true
			if r.permits(p, d, peer, proto, port) {
				return true
			}
		}
	}
	return !isolated && r.tier(api.TierBaseline, list, d, peer, proto, port) != denied
}

func (r *recorder) permits(p *api.ContivPolicy, d api.Direction, peer netip.Addr, proto api.Protocol, port uint16) bool {
	return slices.ContainsFunc(p.Rules(d), func(rule api.PolicyRule) bool {
		return rule.Action == api.RuleAllow && r.matches(rule, peer, proto, port)
	})
}

func (r *recorder) matches(rule api.PolicyRule, peer netip.Addr, proto api.Protocol, port uint16) bool {
	peerOK := rule.AnyPeer ||
		slices.ContainsFunc(rule.Sets, func(id api.SetID) bool { return r.sets[id][peer] }) ||
		slices.ContainsFunc(rule.Blocks, func(b api.IPBlock) bool { return b.Contains(peer) })
	portOK := rule.AnyPort || slices.ContainsFunc(rule.Ports, func(pp api.PolicyPort) bool {
		return pp.Protocol == proto && pp.Range.Contains(port)
	})
	return peerOK && portOK
}

// world is a cluster, its cache and processor, and what the sink knows.
type world struct {
	t     tb
	cache *cache.Cache
	proc  *processor.Processor
	quota int
	sink  *recorder
	state map[model.ID]proto.Message
	addrs []netip.Addr         // SetNodeAddresses
	found []api.Problem        // by the last step
	known map[api.Problem]bool // what was found and not solved since
}

func newWorld(t tb, opts processor.Options) *world { return newWorldWithin(t, opts, processor.Quota) }

// newWorldWithin returns a world in which a namespace has another quota.
func newWorldWithin(t tb, opts processor.Options, quota int) *world {
	c := cache.New()
	w := &world{t: t, cache: c, proc: processor.New(c, opts), quota: quota, sink: newRecorder(t), state: map[model.ID]proto.Message{}, known: map[api.Problem]bool{}}
	w.proc.SetQuota(quota)
	w.resync()
	return w
}

// renumber sets node addresses in addition to those of its pods and its object.
func (w *world) renumber(addrs []netip.Addr) {
	w.t.Helper()
	w.addrs = addrs
	w.proc.SetNodeAddresses(addrs)
	w.apply()
}

// apply brings objects to a new state, all in one batch.
func (w *world) apply(ms ...proto.Message) {
	w.t.Helper()
	var ch model.Changes
	for _, m := range ms {
		id := mustID(w.t, m)
		w.state[id] = m
		ch.Deltas = append(ch.Deltas, model.Delta{ID: id, Value: m})
	}
	w.update(ch)
}

func (w *world) remove(ms ...proto.Message) {
	w.t.Helper()
	var ch model.Changes
	for _, m := range ms {
		id := mustID(w.t, m)
		delete(w.state, id)
		ch.Deltas = append(ch.Deltas, model.Delta{ID: id})
	}
	w.update(ch)
}

// resync replaces the whole state.
func (w *world) resync(ms ...proto.Message) {
	w.t.Helper()
	clear(w.state)
	ch := model.Changes{Resync: true}
	for _, m := range ms {
		id := mustID(w.t, m)
		w.state[id] = m
		ch.Deltas = append(ch.Deltas, model.Delta{ID: id, Value: m})
	}
	w.update(ch)
}

func (w *world) update(ch model.Changes) {
	w.found = w.cache.Update(ch, w.proc)
	w.found = append(w.found, w.proc.Flush(w.sink)...)
	w.keep()
}

// keep tracks found and solved problems, and compares them with the current ones.
func (w *world) keep() {
	for _, p := range append(w.cache.Solved(), w.proc.Solved()...) {
		if !w.known[p] {
			w.t.Fatalf("%s is solved, but was not found", p)
		}
		delete(w.known, p)
	}
	for _, p := range w.found {
		if w.known[p] {
			w.t.Fatalf("%s is found twice", p)
		}
		w.known[p] = true
	}
	all := append(w.cache.Problems(), w.proc.Problems()...)
	for _, p := range all {
		if !w.known[p] {
			w.t.Fatalf("%s was not found, or is solved", p)
		}
	}
	if len(all) != len(w.known) {
		w.t.Fatalf("there are %v, known are %v", all, w.known)
	}
}

func mustID(t tb, m proto.Message) model.ID {
	t.Helper()
	id, err := model.IDOf(m)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return id
}

// expect checks verdicts, each "pod in|out peer-address protocol/port yes|no".
func (w *world) expect(verdicts ...string) {
	w.t.Helper()
	for _, v := range verdicts {
		f := strings.Fields(v)
		id, err := api.ParsePodID(f[0])
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		d := api.Ingress
		if f[1] == "out" {
			d = api.Egress
		}
		name, number, _ := strings.Cut(f[3], "/")
		pr, err := api.ParseProtocol(name)
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		var port uint16
		if _, err := fmt.Sscan(number+" ", &port); err != nil {
			w.t.Fatalf("%q: %v", v, err)
		}
		if got := w.sink.allows(id, d, netip.MustParseAddr(f[2]), pr, port); got != (f[4] == "yes") {
			w.t.Errorf("%s: got %t\n%s", v, got, w.sink.describe())
		}
	}
}

// refused returns the names of the policies that do not fit into the quota.
func (w *world) refused() map[string]bool {
	out := map[string]bool{}
	for _, p := range w.proc.Problems() {
		if p.Class == api.ClassLimit {
			out[p.Object] = true
		}
	}
	return out
}

// admitted returns the state with refused policies that only isolate, and problems without those
// that say so.
func (w *world) admitted() (map[model.ID]proto.Message, []api.Problem) {
	state, refused := maps.Clone(w.state), w.refused()
	for id, m := range state {
		if np, ok := m.(*model.NetworkPolicy); ok && refused[id.String()] {
			np = proto.Clone(np).(*model.NetworkPolicy)
			np.Ingress, np.Egress = nil, nil
			state[id] = np
		}
	}
	problems := slices.DeleteFunc(slices.Clone(w.proc.Problems()), func(p api.Problem) bool { return p.Class == api.ClassLimit })
	return state, problems
}

func (w *world) problems() []string {
	var out []string
	for _, p := range append(w.cache.Problems(), w.proc.Problems()...) {
		out = append(out, p.Object+" "+p.Field)
	}
	return out
}

// ---- objects ----

func labels(kvs string) []*model.Label {
	var out []*model.Label
	for kv := range strings.FieldsSeq(kvs) {
		k, v, _ := strings.Cut(kv, "=")
		out = append(out, &model.Label{Key: k, Value: v})
	}
	slices.SortFunc(out, func(a, b *model.Label) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func ns(name, kvs string) *model.Namespace {
	return &model.Namespace{Name: name, Labels: labels(kvs + " kubernetes.io/metadata.name=" + name)}
}

// pod returns a running pod on node n1, which has the address 192.168.0.1.
func pod(id, kvs string, ips ...string) *model.Pod {
	namespace, name, _ := strings.Cut(id, "/")
	return &model.Pod{
		Namespace: namespace, Name: name, Labels: labels(kvs), Ips: ips,
		Phase: model.Pod_PHASE_RUNNING, NodeName: "n1", NodeIps: []string{"192.168.0.1"},
	}
}

// remote moves a pod to node n2.
func remote(p *model.Pod) *model.Pod {
	p.NodeName, p.NodeIps = "n2", []string{"192.168.0.2"}
	return p
}

// with adds named ports, each "name=protocol/number".
func with(p *model.Pod, ports ...string) *model.Pod {
	for _, s := range ports {
		name, rest, _ := strings.Cut(s, "=")
		pr, number, _ := strings.Cut(rest, "/")
		np := &model.Pod_NamedPort{Name: name, Protocol: protocols[pr]}
		if _, err := fmt.Sscan(number, &np.Port); err != nil {
			panic(err)
		}
		p.NamedPorts = append(p.NamedPorts, np)
	}
	return p
}

var protocols = map[string]model.Protocol{
	"tcp": model.Protocol_PROTOCOL_TCP, "udp": model.Protocol_PROTOCOL_UDP, "sctp": model.Protocol_PROTOCOL_SCTP,
}

// sel reads "k=v" (matchLabels), "k", "!k", "k:a|b" (In) and "k!a|b" (NotIn).
func sel(terms ...string) *model.LabelSelector {
	s := &model.LabelSelector{}
	add := func(k string, op model.LabelSelector_Operator, values string) {
		r := &model.LabelSelector_Requirement{Key: k, Operator: op}
		if values != "" {
			r.Values = strings.Split(values, "|")
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	for _, t := range terms {
		if k, v, ok := strings.Cut(t, "="); ok {
			s.MatchLabels = append(s.MatchLabels, &model.Label{Key: k, Value: v})
		} else if k, v, ok := strings.Cut(t, ":"); ok {
			add(k, model.LabelSelector_OPERATOR_IN, v)
		} else if k, ok := strings.CutPrefix(t, "!"); ok {
			add(k, model.LabelSelector_OPERATOR_DOES_NOT_EXIST, "")
		} else if k, v, ok := strings.Cut(t, "!"); ok {
			add(k, model.LabelSelector_OPERATOR_NOT_IN, v)
		} else {
			add(t, model.LabelSelector_OPERATOR_EXISTS, "")
		}
	}
	return s
}

func pods(terms ...string) *model.NetworkPolicy_Peer {
	return &model.NetworkPolicy_Peer{PodSelector: sel(terms...)}
}

func namespaces(terms ...string) *model.NetworkPolicy_Peer {
	return &model.NetworkPolicy_Peer{NamespaceSelector: sel(terms...)}
}

func both(namespace, pods *model.LabelSelector) *model.NetworkPolicy_Peer {
	return &model.NetworkPolicy_Peer{NamespaceSelector: namespace, PodSelector: pods}
}

func block(cidr string, except ...string) *model.NetworkPolicy_Peer {
	return &model.NetworkPolicy_Peer{IpBlock: &model.NetworkPolicy_IPBlock{Cidr: cidr, Except: except}}
}

// port reads "tcp", "tcp/80", "tcp/80-90" or "tcp/web".
func port(s string) *model.NetworkPolicy_Port {
	pr, rest, ok := strings.Cut(s, "/")
	p := &model.NetworkPolicy_Port{Protocol: protocols[pr]}
	var first, last uint32
	switch n, _ := fmt.Sscanf(rest, "%d-%d", &first, &last); {
	case !ok:
	case n == 0:
		p.Port = &model.NetworkPolicy_Port_Name{Name: rest}
	default:
		p.Port = &model.NetworkPolicy_Port_Number{Number: first}
		p.EndPort = last
	}
	return p
}

func rule(peers []*model.NetworkPolicy_Peer, ports ...string) *model.NetworkPolicy_Rule {
	r := &model.NetworkPolicy_Rule{Peers: peers}
	for _, s := range ports {
		r.Ports = append(r.Ports, port(s))
	}
	return r
}

func peers(ps ...*model.NetworkPolicy_Peer) []*model.NetworkPolicy_Peer { return ps }

// ingress returns a policy that isolates ingress only.
func ingress(id string, subject *model.LabelSelector, rules ...*model.NetworkPolicy_Rule) *model.NetworkPolicy {
	namespace, name, _ := strings.Cut(id, "/")
	return &model.NetworkPolicy{Namespace: namespace, Name: name, PodSelector: subject, IsolatesIngress: true, Ingress: rules}
}

// egress returns a policy that isolates egress only.
func egress(id string, subject *model.LabelSelector, rules ...*model.NetworkPolicy_Rule) *model.NetworkPolicy {
	namespace, name, _ := strings.Cut(id, "/")
	return &model.NetworkPolicy{Namespace: namespace, Name: name, PodSelector: subject, IsolatesEgress: true, Egress: rules}
}

var n1 = processor.Options{Node: "n1"}

func change[M proto.Message](m M, f func(M)) M {
	c := proto.CloneOf(m)
	f(c)
	return c
}

func sameList(a, b []*api.ContivPolicy) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
