package observed

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// Options of a proposal.
type Options struct {
	// Namespace is the one whose workloads get policies.
	Namespace string
	// Denied has flows permitted, too, that policies denied.
	Denied bool
	// Portless has flows of protocols without ports permitted, too, by rules with every port: no
	// other rule of a NetworkPolicy permits them.
	Portless bool
	// Replace leaves out the NetworkPolicies that the namespace has.
	Replace bool
	// Audit has the policies in audit mode. What is said about them is as if they were enforced.
	Audit bool
}

// Policy is a proposed policy of a workload.
type Policy struct {
	networkingv1.NetworkPolicy
	workload *workload
	notes    []string
	// peers are what was observed of each peer, by direction, rule and peer.
	peers [2][][]seen
}

// seen is what was observed of a peer.
type seen struct {
	packets uint64
	last    time.Time
	addrs   int             // of a block
	from    map[string]bool // pods, or nodes
	source  map[*flow]bool
}

func (s *seen) add(f *flow, d api.Direction, name string) {
	v := f.seenBy(d)
	if s.from == nil {
		s.from, s.source = map[string]bool{}, map[*flow]bool{}
	}
	if s.from[name] = true; !s.source[f] {
		s.source[f] = true
		s.packets += v.packets
		if v.last.After(s.last) {
			s.last = v.last
		}
	}
}

// merge adds what was seen of a part.
func (s *seen) merge(o *seen, d api.Direction) {
	for f := range o.source {
		s.add(f, d, "")
	}
	delete(s.from, "")
	maps.Copy(s.from, o.from)
}

// portKey is a port as a rule names it; AnyProtocol is every port.
type portKey struct {
	protocol api.Protocol
	port     uint16
}

// peerKey identifies a peer: a workload, or a block.
type peerKey struct {
	workload *workload
	block    netip.Prefix
}

// draft collects the rules of a workload.
type draft struct {
	*workload
	pods   [2]map[peerKey]map[portKey]*seen
	blocks [2]map[portKey]map[netip.Addr]*seen
	node   int // flows with the own node
}

// proposal is a suggestion that is being made.
type proposal struct {
	Options
	*inventory
	drafts map[*workload]*draft
	wanted []wanted // flows that are to be permitted
	left   notes    // about observed flows that are not permitted
	notes  notes
}

// wanted is a flow that is to be permitted, between addresses that pods have now.
type wanted struct {
	*flow
	api.Flow
	src, dst end
}

// notes are remarks, each with its examples.
type notes map[string]map[string]bool

// add takes an example of a remark.
func (n notes) add(remark, example string) {
	if n[remark] == nil {
		n[remark] = map[string]bool{}
	}
	n[remark][example] = true
}

// texts returns the sorted remarks, each with a few examples.
func (n notes) texts() (out []string) {
	for _, remark := range slices.Sorted(maps.Keys(n)) {
		out = append(out, remark+": "+few(slices.Sorted(maps.Keys(n[remark])), 4))
	}
	return out
}

// few joins the first of some texts.
func few(all []string, most int) string {
	text := strings.Join(all[:min(len(all), most)], ", ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// addFlow takes a flow up.
func (p *proposal) addFlow(f *flow) {
	src, dst := p.find(f.src, f.srcAddr), p.find(f.dst, f.dstAddr)
	isSrc, isDst := p.isSubject(src), p.isSubject(dst)
	inNamespace := isSrc || isDst || src.lost.Namespace == p.Namespace || dst.lost.Namespace == p.Namespace
	text := flowText(f, src, dst)
	switch denied := f.denied(); {
	case !inNamespace:
		return
	case src.pod != nil && src.pod == dst.pod && f.src == f.dst:
		return // a pod with itself passes no policy
	case p.isOwnNode(src.pod, dst), p.isOwnNode(dst.pod, src):
		for _, e := range []end{src, dst} {
			if p.isSubject(e) {
				p.draft(e.workload).node++
			}
		}
		return
	case denied != "" && denied != policyReason:
		p.notes.add("dropped for another reason than a policy ("+denied+"), so that none can permit them", text)
		return
	case denied != "" && !p.Denied:
		p.notes.add("denied when they were seen last, and not permitted (--include-denied permits them)", text)
		return
	}
	for _, e := range []end{src, dst} {
		if e.lost.Name != "" {
			p.left.add("not permitted, because a pod is gone, and not one workload has its name", text)
			return
		}
	}
	if f.protocol.HasPorts() && f.port == 0 {
		p.left.add("not permitted, because no policy can name port 0", text)
		return
	}
	if !f.protocol.HasPorts() && !p.Portless {
		p.left.add("not permitted, because a NetworkPolicy can permit them only with every port (--include-portless does that)", text)
		return
	}
	for _, e := range []end{src, dst} {
		if e.was.Name != "" {
			p.notes.add("pods that are gone are taken for pods of the workload with their name", fmt.Sprintf("%s of %s", e.was, e.workload))
		}
	}
	w := wanted{flow: f, Flow: api.Flow{Protocol: f.protocol, DstPort: f.port}, src: src, dst: dst}
	var hasSrc, hasDst bool
	w.Src, hasSrc = src.now()
	w.Dst, hasDst = dst.now()
	if hasSrc && hasDst {
		p.wanted = append(p.wanted, w)
	} else {
		p.notes.add("permitted, but not checked, because no pod of the workload has an address of the family now", text)
	}
	if isSrc {
		p.permit(src.workload, api.Egress, f, dst)
	}
	if isDst {
		p.permit(dst.workload, api.Ingress, f, src)
	}
}

func (p *proposal) isSubject(e end) bool { return e.workload != nil && e.namespace == p.Namespace }

func (p *proposal) draft(w *workload) *draft {
	d := p.drafts[w]
	if d == nil {
		d = &draft{workload: w}
		for i := range d.pods {
			d.pods[i], d.blocks[i] = map[peerKey]map[portKey]*seen{}, map[portKey]map[netip.Addr]*seen{}
		}
		p.drafts[w] = d
	}
	return d
}

// permit adds a flow to the rules of a workload.
func (p *proposal) permit(w *workload, d api.Direction, f *flow, peer end) {
	draft, port := p.draft(w), portKey{f.protocol, f.port}
	if !f.protocol.HasPorts() {
		port = portKey{}
	}
	if peer.workload != nil {
		id := f.src
		if d == api.Egress {
			id = f.dst
		}
		name := id.String()
		if id == (api.PodID{}) {
			name = explain.PodID(peer.pod).String()
		}
		seenAt(at2(draft.pods[d], peerKey{workload: peer.workload}), port).add(f, d, name)
		return
	}
	name := ""
	if node := p.hosts[peer.addr]; node != "" {
		name = "node " + node
	}
	seenAt(at2(draft.blocks[d], port), peer.addr).add(f, d, name)
}

func seenAt[K comparable](m map[K]*seen, k K) *seen {
	if m[k] == nil {
		m[k] = &seen{}
	}
	return m[k]
}

func at2[K, L comparable](m map[K]map[L]*seen, k K) map[L]*seen {
	if m[k] == nil {
		m[k] = map[L]*seen{}
	}
	return m[k]
}

// inside returns the sorted addresses of pods and nodes.
func (p *proposal) inside() []netip.Addr {
	return sortedAddrs(append(slices.Collect(maps.Keys(p.at)), slices.Collect(maps.Keys(p.hosts))...))
}

// policy makes the policy of a draft.
func (p *proposal) policy(d *draft, name string, inside []netip.Addr) Policy {
	out := Policy{workload: d.workload}
	out.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}
	out.Namespace, out.Name = d.namespace, name
	if p.Audit {
		out.Annotations = map[string]string{kinds.ModeAnnotation: "audit"}
	}
	out.Spec.PodSelector = *p.selectorOf(d.workload)
	out.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	for _, dir := range []api.Direction{api.Ingress, api.Egress} {
		for _, r := range d.rules(dir, inside) {
			ports, peers, about := portsOf(r.ports), []networkingv1.NetworkPolicyPeer(nil), []seen(nil)
			for _, x := range r.peers {
				peers, about = append(peers, p.peer(d.workload, x.peerKey)), append(about, *x.seen)
			}
			if dir == api.Ingress {
				out.Spec.Ingress = append(out.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
			} else {
				out.Spec.Egress = append(out.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
			}
			out.peers[dir] = append(out.peers[dir], about)
		}
	}
	if d.node > 0 {
		out.notes = append(out.notes, term.Count(d.node, "flow")+" with the own node, which needs no rule")
	}
	return out
}

// rule is peers with the same ports.
type rule struct {
	ports []portKey
	peers []rulePeer
}

type rulePeer struct {
	peerKey
	*seen
}

// rules returns the rules of a direction: each peer is in one, and no two have the same ports.
func (d *draft) rules(dir api.Direction, inside []netip.Addr) []rule {
	byPeer := map[peerKey]map[portKey]*seen{}
	maps.Copy(byPeer, d.pods[dir])
	for port, addrs := range d.blocks[dir] {
		for _, b := range blocksOf(slices.Collect(maps.Keys(addrs)), inside) {
			s := seenAt(at2(byPeer, peerKey{block: b.Prefix}), port)
			for _, a := range b.addrs {
				s.merge(addrs[a], dir)
			}
			s.addrs = len(b.addrs)
		}
	}
	byPorts := map[string]*rule{}
	for _, k := range slices.SortedFunc(maps.Keys(byPeer), peerKey.compare) {
		if every, ok := byPeer[k][portKey{}]; ok { // has all of the others
			for port, s := range byPeer[k] {
				if every.merge(s, dir); port != (portKey{}) {
					delete(byPeer[k], port)
				}
			}
		}
		ports := slices.SortedFunc(maps.Keys(byPeer[k]), portKey.compare)
		all := &seen{}
		for _, port := range ports {
			s := byPeer[k][port]
			all.merge(s, dir)
			all.addrs = max(all.addrs, s.addrs)
		}
		key := fmt.Sprint(ports)
		if byPorts[key] == nil {
			byPorts[key] = &rule{ports: ports}
		}
		byPorts[key].peers = append(byPorts[key].peers, rulePeer{k, all})
	}
	out := make([]rule, 0, len(byPorts))
	for _, r := range byPorts {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b rule) int {
		return cmp.Or(slices.CompareFunc(a.ports, b.ports, portKey.compare), a.peers[0].compare(b.peers[0].peerKey))
	})
	return out
}

// compare orders workloads, before blocks.
func (k peerKey) compare(o peerKey) int {
	switch {
	case k.workload != nil && o.workload != nil:
		return cmp.Or(strings.Compare(k.workload.String(), o.workload.String()), strings.Compare(k.workload.key, o.workload.key))
	case k.workload != nil:
		return -1
	case o.workload != nil:
		return 1
	}
	return k.block.Compare(o.block)
}

func (k portKey) compare(o portKey) int {
	return cmp.Or(cmp.Compare(k.protocol, o.protocol), cmp.Compare(k.port, o.port))
}

// peer returns a peer as a rule of a workload's policy names it.
func (p *proposal) peer(w *workload, k peerKey) networkingv1.NetworkPolicyPeer {
	if k.workload == nil {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: k.block.String()}}
	}
	out := networkingv1.NetworkPolicyPeer{PodSelector: p.selectorOf(k.workload)}
	if k.workload.namespace != w.namespace {
		out.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: k.workload.namespace}}
	}
	return out
}

// protocols are those with ports, as NetworkPolicies call them.
var protocols = map[api.Protocol]corev1.Protocol{api.TCP: corev1.ProtocolTCP, api.UDP: corev1.ProtocolUDP, api.SCTP: corev1.ProtocolSCTP}

// portsOf returns ports as a rule names them, those that follow each other as a range; none for
// every port.
func portsOf(ports []portKey) (out []networkingv1.NetworkPolicyPort) {
	for i := 0; i < len(ports) && ports[i] != (portKey{}); {
		first, last := ports[i], ports[i]
		for i++; i < len(ports) && ports[i].protocol == last.protocol && ports[i].port == last.port+1; i++ {
			last = ports[i]
		}
		protocol, number, end := protocols[first.protocol], intstr.FromInt32(int32(first.port)), int32(last.port)
		p := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &number}
		if last != first {
			p.EndPort = &end
		}
		out = append(out, p)
	}
	return out
}

// nameOf returns a name for a policy that no other of the proposal has.
func nameOf(w *workload, taken map[string]bool) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(w.name))
	base := "observed-" + strings.Trim(clean[:min(len(clean), 200)], "-")
	name := strings.TrimSuffix(base, "-")
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	taken[name] = true
	return name
}

// flowText names a flow.
func flowText(f *flow, src, dst end) string {
	name := func(id api.PodID, a netip.Addr, e end) string {
		switch {
		case id != api.PodID{}:
			return id.String()
		case e.workload != nil:
			return explain.PodID(e.pod).String()
		}
		return a.String()
	}
	to := name(f.dst, f.dstAddr, dst)
	if f.protocol.HasPorts() {
		if strings.Contains(to, "::") || strings.Count(to, ":") > 1 {
			to = "[" + to + "]"
		}
		to += fmt.Sprintf(":%d", f.port)
	}
	return fmt.Sprintf("%s -> %s/%s", name(f.src, f.srcAddr, src), to, f.protocol)
}

// MarshalJSON writes the policy alone.
func (p Policy) MarshalJSON() ([]byte, error) { return json.Marshal(p.NetworkPolicy) }
