package preview

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// state is the cluster before the change, or after it.
type state struct {
	explain.Manifests
	*oracle.Oracle
	policies []*policy
	pods     map[api.PodID]*pod   // that policies see, at an address
	selected map[netip.Addr][]int // numbers of the selectors that match the node at an address
	nodes    map[string][]string  // addresses of nodes by name
}

// pod is a pod in one state.
type pod struct {
	*model.Pod
	addrs     []netip.Addr
	policies  []*policy    // that apply to it
	peer      []int        // numbers of the selectors of peers that match it, sorted
	treatment string       // all that its verdicts depend on
	shared    []int        // numbers of the treatments of all pods at addresses that it shares
	hosts     []netip.Addr // of its node
}

// addressOf returns the address of a family, if the pod has one.
func (p *pod) addressOf(is4 bool) (netip.Addr, bool) {
	if p == nil {
		return netip.Addr{}, false
	}
	i := slices.IndexFunc(p.addrs, func(a netip.Addr) bool { return a.Is4() == is4 })
	if i < 0 {
		return netip.Addr{}, false
	}
	return p.addrs[i], true
}

// newState reads a state. describe sorts its pods into classes once the vocabulary has both states.
func newState(m explain.Manifests, v *vocabulary) *state {
	s := &state{Manifests: m, Oracle: oracle.New(m.State(), oracle.AllowNodeTraffic(!m.DenyNode)), pods: map[api.PodID]*pod{}}
	for _, p := range m.Policies {
		s.policies = append(s.policies, v.networkPolicy(p))
	}
	for _, p := range m.ClusterPolicies {
		s.policies = append(s.policies, v.clusterPolicy(p))
	}
	return s
}

// describe finds the pods, and what each one's verdicts depend on.
func (s *state) describe(v *vocabulary) {
	seen := map[string]matched{}
	inNamespace := s.byNamespace()
	s.describeNodes(v)
	for _, m := range s.Pods {
		p := &pod{Pod: m}
		id := explain.PodID(m)
		for _, a := range explain.Addresses(m) {
			if slices.Contains(s.PodsAt(a), id) {
				p.addrs = append(p.addrs, a)
			}
		}
		if len(p.addrs) == 0 {
			continue
		}
		p.hosts = s.hostsOf(p)
		set := explain.Labels(m)
		namespaceSet, known := s.NamespaceLabels(m.GetNamespace())
		key := fmt.Sprintf("%q %t %q %q", m.GetNamespace(), known, namespaceSet, set)
		match, ok := seen[key]
		if !ok {
			candidates := append(slices.Clone(inNamespace[m.GetNamespace()]), inNamespace[""]...)
			match = v.match(candidates, m.GetNamespace(), set, namespaceSet, known)
			seen[key] = match
		}
		p.policies, p.peer = match.policies, match.peer
		p.treatment = match.text + v.own(s, p)
		s.pods[id] = p
	}
	s.shareAddresses(v)
}

// byNamespace returns the policies that can apply to pods of a namespace; those of cluster scope
// have none.
func (s *state) byNamespace() map[string][]*policy {
	out := map[string][]*policy{}
	for _, p := range s.policies {
		out[p.subject.namespace] = append(out[p.subject.namespace], p)
	}
	return out
}

// matched is what matches pods with some labels in some namespace.
type matched struct {
	policies []*policy
	peer     []int // numbers of selectors
	text     string
}

func (v *vocabulary) match(policies []*policy, namespace string, set, namespaces labels.Set, known bool) (out matched) {
	var subject []int
	for _, p := range policies {
		if p.subject.matches(namespace, set, namespaces, known) {
			out.policies, subject = append(out.policies, p), append(subject, p.number)
		}
	}
	for i, s := range v.selectors {
		if s.matches(namespace, set, namespaces, known) {
			out.peer = append(out.peer, i)
		}
	}
	slices.Sort(subject)
	out.text = fmt.Sprint("policies", subject, "peer", out.peer)
	return out
}

// own describes what verdicts about a pod depend on besides its labels: its addresses as far as
// blocks distinguish them, its named ports as far as rules name them, and its node where admin
// policies may name it.
func (v *vocabulary) own(s *state, p *pod) string {
	var b strings.Builder
	for _, a := range p.addrs {
		fmt.Fprint(&b, " ", a.Is4(), v.blocks.rules(a), s.selected[a])
	}
	for _, n := range p.GetNamedPorts() {
		if v.names[n.GetName()] {
			fmt.Fprintf(&b, " %q/%d=%d", n.GetName(), n.GetProtocol(), n.GetPort())
		}
	}
	if v.tiers {
		for _, a := range p.hosts {
			fmt.Fprint(&b, " node ", a.Is4(), v.blocks.rules(a), s.selected[a])
		}
	}
	return b.String()
}

// describeNodes finds the addresses of nodes, and which selectors of nodes match a node at each.
func (s *state) describeNodes(v *vocabulary) {
	s.selected, s.nodes = map[netip.Addr][]int{}, map[string][]string{}
	for _, n := range s.Nodes {
		s.nodes[n.GetName()] = append(s.nodes[n.GetName()], n.GetAddresses()...)
		set := labels.Set{}
		for _, l := range n.GetLabels() {
			set[l.GetKey()] = l.GetValue()
		}
		for i, sel := range v.nodes {
			if sel.Matches(set) {
				for _, a := range addrsOf(n.GetAddresses()) {
					s.selected[a] = append(s.selected[a], i)
				}
			}
		}
	}
	for a, numbers := range s.selected {
		slices.Sort(numbers)
		s.selected[a] = slices.Compact(numbers)
	}
}

// hostsOf returns the addresses of a pod's node, sorted.
func (s *state) hostsOf(p *pod) []netip.Addr {
	texts := slices.Clone(p.GetNodeIps())
	if obj := s.Pod(explain.PodID(p.Pod)); obj != nil {
		for _, ip := range obj.Status.HostIPs {
			texts = append(texts, ip.IP)
		}
	}
	return addrsOf(append(texts, s.nodes[p.GetNodeName()]...))
}

// shareAddresses treats pods with one address alike: a packet is about all of them.
func (s *state) shareAddresses(v *vocabulary) {
	holders := map[netip.Addr][]*pod{}
	for _, id := range slices.SortedFunc(maps.Keys(s.pods), api.PodID.Compare) {
		for _, a := range s.pods[id].addrs {
			holders[a] = append(holders[a], s.pods[id])
		}
	}
	maps.DeleteFunc(holders, func(_ netip.Addr, all []*pod) bool { return len(all) == 1 })
	type shared struct {
		policies []*policy
		number   int // of what the treatment of all is
	}
	at := map[netip.Addr]shared{} // before any pod is changed
	for a, all := range holders {
		var x shared
		var text strings.Builder
		for _, p := range all {
			x.policies = append(x.policies, p.policies...)
			fmt.Fprintf(&text, "%q", p.treatment)
		}
		x.policies = distinct(x.policies)
		x.number, _ = v.number("shared %t %s", a.Is4(), text.String())
		at[a] = x
	}
	for a, all := range holders {
		for _, p := range all {
			p.shared = append(p.shared, at[a].number)
			p.policies = distinct(slices.Concat(p.policies, at[a].policies))
		}
	}
	for _, p := range s.pods {
		if slices.Sort(p.shared); len(p.shared) > 0 {
			p.treatment += fmt.Sprint(" shared", p.shared)
		}
	}
}

// distinct returns each policy once, by number.
func distinct(policies []*policy) []*policy {
	out := slices.SortedFunc(slices.Values(policies), func(a, b *policy) int { return a.number - b.number })
	return slices.Compact(out)
}

// class is pods that no verdict of either state tells apart.
type class struct {
	members []api.PodID // sorted
	first   member
	second  member // with another address than the first, if there is one
	// changed says that a verdict between the pods and what is not changed may be another one,
	// moved that their node has other addresses, or is another one.
	changed, moved bool
	terms          [2]int // numbers of the terms of their policies, by direction
}

// member is a pod of a class in both states, nil where it is not there.
type member struct{ was, is *pod }

func (m member) named() []*model.Pod_NamedPort {
	var out []*model.Pod_NamedPort
	for _, p := range []*pod{m.was, m.is} {
		if p != nil {
			out = append(out, p.GetNamedPorts()...)
		}
	}
	return out
}

// policies returns those that apply to the pod in either state, each once.
func (m member) policies() []*policy {
	var all []*policy
	for _, p := range []*pod{m.was, m.is} {
		if p != nil {
			all = append(all, p.policies...)
		}
	}
	return distinct(all)
}

// isApart reports whether packets between the two pods have two ends in every state that has both.
func (m member) isApart(o member) bool {
	apart := func(a, b *pod) bool {
		return a == nil || b == nil || !slices.ContainsFunc(a.addrs, func(x netip.Addr) bool { return slices.Contains(b.addrs, x) })
	}
	return apart(m.was, o.was) && apart(m.is, o.is)
}

// classesOf groups the pods of both states.
func classesOf(was, is *state) []*class {
	byTreatment := map[string]*class{}
	ids := map[api.PodID]bool{}
	for _, s := range []*state{was, is} {
		for id := range s.pods {
			ids[id] = true
		}
	}
	var out []*class
	for _, id := range slices.SortedFunc(maps.Keys(ids), api.PodID.Compare) {
		m := member{was.pods[id], is.pods[id]}
		moves := moved(m)
		key := treatmentOf(m.was) + "\n" + treatmentOf(m.is) + moves
		c := byTreatment[key]
		if c == nil {
			c = &class{first: m, changed: treatmentOf(m.was) != treatmentOf(m.is) || moves != "", moved: moves != ""}
			byTreatment[key] = c
			out = append(out, c)
		} else if c.second == (member{}) && c.first.isApart(m) {
			c.second = m
		}
		c.members = append(c.members, id)
	}
	return out
}

// moved says from which addresses of its node to which a pod went, empty where they are the same:
// it may always talk with them.
func moved(m member) string {
	if m.was == nil || m.is == nil {
		return ""
	}
	from, to := m.was.hosts, m.is.hosts
	if slices.Equal(from, to) {
		return ""
	}
	return fmt.Sprint("moves ", from, to)
}

func treatmentOf(p *pod) string {
	if p == nil {
		return "absent"
	}
	return p.treatment
}

// addrsOf parses addresses, sorted and each once.
func addrsOf(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil {
			out = append(out, a.Unmap())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
