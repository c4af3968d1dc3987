package bench

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
)

// sampler draws flows with one end at least on a node. Drawn blindly in a large cluster nearly all
// would be denied by isolation alone, so most are aimed at a peer and a port of some rule, and some
// just outside of it.
type sampler struct {
	r        *rand.Rand
	pods     []*corev1.Pod // with an address of their own
	local    []*corev1.Pod // of them on the node
	byName   map[string][]*corev1.Pod
	labels   map[string]labels.Set // of namespaces
	policies map[string][]*networkingv1.NetworkPolicy
	// tierPorts are those that administrators' policies name.
	tierPorts []api.PolicyPort
}

func newSampler(s oracle.State, node string) *sampler {
	out := &sampler{r: rand.New(rand.NewPCG(1, 2)), byName: map[string][]*corev1.Pod{},
		labels: map[string]labels.Set{}, policies: map[string][]*networkingv1.NetworkPolicy{}}
	for _, p := range s.Pods {
		if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.Status.PodIP == "" {
			continue
		}
		out.pods = append(out.pods, p)
		out.byName[p.Namespace] = append(out.byName[p.Namespace], p)
		if p.Spec.NodeName == node {
			out.local = append(out.local, p)
		}
	}
	for _, ns := range s.Namespaces {
		out.labels[ns.Name] = ns.Labels
	}
	for _, np := range s.Policies {
		out.policies[np.Namespace] = append(out.policies[np.Namespace], np)
	}
	out.tierPorts = portsOfTiers(s)
	return out
}

// portsOfTiers lists the ports that administrators' policies name by number.
func portsOfTiers(s oracle.State) (out []api.PolicyPort) {
	add := func(object any) {
		value, ok := convertClusterPolicy(object)
		if !ok {
			return
		}
		for _, r := range slices.Concat(value.Ingress, value.Egress) {
			for _, p := range r.Ports {
				if n := uint16(p.GetNumber()); n > 0 {
					protocol := map[model.Protocol]api.Protocol{model.Protocol_PROTOCOL_UDP: api.UDP, model.Protocol_PROTOCOL_SCTP: api.SCTP}[p.Protocol]
					out = append(out, api.PolicyPort{Protocol: cmp.Or(protocol, api.TCP), Range: api.Ports(n, max(n, uint16(p.EndPort)))})
				}
			}
		}
	}
	for _, o := range s.AdminPolicies {
		add(o)
	}
	for _, o := range s.BaselinePolicies {
		add(o)
	}
	for _, o := range s.ClusterPolicies {
		add(o)
	}
	return out
}

func convertClusterPolicy(object any) (*model.ClusterPolicy, bool) {
	m, _ := convert.ToModel(object)
	value, ok := m.(*model.ClusterPolicy)
	return value, ok
}

// addresses returns the local pods by address.
func (s *sampler) addresses() map[netip.Addr]api.PodID {
	out := map[netip.Addr]api.PodID{}
	for _, p := range s.local {
		out[address(p)] = api.PodID{Namespace: p.Namespace, Name: p.Name}
	}
	return out
}

func address(p *corev1.Pod) netip.Addr { return netip.MustParseAddr(p.Status.PodIP) }

func pick[T any](s *sampler, list []T) T { return list[s.r.IntN(len(list))] }

// flow draws one flow; with focus, every second one is about one of these objects,
// whether they are there or not.
func (s *sampler) flow(focus []any) api.Flow {
	for {
		var about any
		if len(focus) > 0 && s.r.IntN(2) == 0 {
			about = pick(s, focus)
		}
		if f := s.draw(s.aim(about)); f.Src != f.Dst && f.Src.Is4() == f.Dst.Is4() {
			return f
		}
	}
}

// aim is what a flow is drawn for.
type aim struct {
	subject *corev1.Pod
	policy  *networkingv1.NetworkPolicy // nil: any that applies to the subject
	peer    *corev1.Pod                 // nil: any
}

// aim draws a subject, and what else an object has to do with a flow.
func (s *sampler) aim(about any) aim {
	a := aim{subject: pick(s, s.local)}
	subjects := func(namespace string, selector labels.Selector) {
		near := slices.DeleteFunc(slices.Clone(s.local), func(p *corev1.Pod) bool {
			return p.Namespace != namespace || !selector.Matches(labels.Set(p.Labels))
		})
		if len(near) > 0 {
			a.subject = pick(s, near)
		}
	}
	switch o := about.(type) {
	case *corev1.Pod:
		if slices.Contains(s.local, o) && s.r.IntN(2) == 0 {
			a.subject = o
		} else if subjects(o.Namespace, labels.Everything()); o.Status.PodIP != "" {
			a.peer = o
		}
	case *networkingv1.NetworkPolicy:
		a.policy = o
		subjects(o.Namespace, selector(&o.Spec.PodSelector))
	case *corev1.Namespace:
		if pods := s.byName[o.Name]; len(pods) > 0 {
			a.peer = pick(s, pods)
		}
	}
	return a
}

func (s *sampler) draw(a aim) api.Flow {
	d := api.Direction(s.r.IntN(2))
	peer, pod := s.anyone(a.subject)
	protocol, port := api.TCP, uint16(8080)
	if r, ok := s.rule(a, d); ok {
		if s.r.IntN(4) > 0 {
			peer, pod = s.matching(a.subject.Namespace, r.peers)
		}
		if a.peer != nil {
			peer, pod = address(a.peer), a.peer
		}
		owner := pod
		if d == api.Ingress {
			owner = a.subject
		}
		protocol, port = s.port(r.ports, owner)
	}
	if len(s.tierPorts) > 0 && s.r.IntN(2) == 0 {
		at := pick(s, s.tierPorts)
		protocol, port = at.Protocol, at.Range.First+uint16(s.r.IntN(int(at.Range.Last-at.Range.First)+1))
	}
	f := api.Flow{Src: peer, Dst: address(a.subject), Protocol: protocol, SrcPort: 40000, DstPort: port}
	if d == api.Egress {
		f.Src, f.Dst = f.Dst, f.Src
	}
	return f
}

// anyone draws a pod, mostly of the subject's namespace, its node, or an address of
// the world.
func (s *sampler) anyone(subject *corev1.Pod) (netip.Addr, *corev1.Pod) {
	pod := pick(s, s.pods)
	switch s.r.IntN(8) {
	case 0:
		return netip.AddrFrom4([4]byte{203, 0, 113, byte(s.r.IntN(256))}), nil
	case 1:
		if subject.Status.HostIP != "" {
			return netip.MustParseAddr(subject.Status.HostIP), nil
		}
	case 2, 3, 4:
		pod = pick(s, s.byName[subject.Namespace])
	}
	return address(pod), pod
}

// rule is one rule of either direction.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// rule draws a rule of the policy that the aim names, or of one that applies to the
// subject.
func (s *sampler) rule(a aim, d api.Direction) (rule, bool) {
	var rules []rule
	policies := s.policies[a.subject.Namespace]
	if a.policy != nil {
		policies = []*networkingv1.NetworkPolicy{a.policy}
	}
	for _, np := range policies {
		if a.policy == nil && !selector(&np.Spec.PodSelector).Matches(labels.Set(a.subject.Labels)) {
			continue
		}
		if d == api.Ingress {
			for _, r := range np.Spec.Ingress {
				rules = append(rules, rule{r.From, r.Ports})
			}
			continue
		}
		for _, r := range np.Spec.Egress {
			rules = append(rules, rule{r.To, r.Ports})
		}
	}
	if len(rules) == 0 {
		return rule{}, false
	}
	return pick(s, rules), true
}

// matching draws what one of the peers matches, if it is found soon.
func (s *sampler) matching(namespace string, peers []networkingv1.NetworkPolicyPeer) (netip.Addr, *corev1.Pod) {
	pod := pick(s, s.pods)
	if len(peers) == 0 {
		return address(pod), pod
	}
	peer := pick(s, peers)
	if peer.IPBlock != nil {
		return s.inBlock(peer.IPBlock), nil
	}
	candidates := s.pods
	if peer.NamespaceSelector == nil {
		candidates = s.byName[namespace]
	}
	const tries = 20_000
	matches := matcher(peer, s.labels)
	first := s.r.IntN(len(candidates))
	for i := range min(tries, len(candidates)) {
		if p := candidates[(first+i)%len(candidates)]; matches(p) {
			return address(p), p
		}
	}
	return address(pod), pod
}

// matcher returns whether the selectors of a peer match a pod.
func matcher(peer networkingv1.NetworkPolicyPeer, namespaces map[string]labels.Set) func(*corev1.Pod) bool {
	everything := labels.Everything()
	ofPod, ofNamespace := everything, everything
	if peer.PodSelector != nil {
		ofPod = selector(peer.PodSelector)
	}
	if peer.NamespaceSelector != nil {
		ofNamespace = selector(peer.NamespaceSelector)
	}
	return func(p *corev1.Pod) bool {
		return ofNamespace.Matches(namespaces[p.Namespace]) && ofPod.Matches(labels.Set(p.Labels))
	}
}

// inBlock draws an address of a block, or of the edges of one of its excepts.
func (s *sampler) inBlock(b *networkingv1.IPBlock) netip.Addr {
	p := netip.MustParsePrefix(b.CIDR)
	if len(b.Except) > 0 && s.r.IntN(2) == 0 {
		except := netip.MustParsePrefix(pick(s, b.Except)).Masked().Addr()
		if s.r.IntN(2) == 0 {
			return except
		}
		return except.Prev()
	}
	bytes := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(bytes); i++ {
		bytes[i/8] |= byte(s.r.IntN(2)) << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// port draws a port that the list matches, or one next to it. Names are looked up at the pod that
// is the destination.
func (s *sampler) port(ports []networkingv1.NetworkPolicyPort, destination *corev1.Pod) (api.Protocol, uint16) {
	if len(ports) == 0 {
		return api.UDP, uint16(1 + s.r.IntN(65535))
	}
	p := pick(s, ports)
	protocol := api.TCP
	if p.Protocol != nil && *p.Protocol == corev1.ProtocolUDP {
		protocol = api.UDP
	}
	number := int32(8080)
	switch {
	case p.Port == nil:
	case p.Port.Type == intstr.Int:
		number = p.Port.IntVal
	case destination != nil:
		named := func(c corev1.ContainerPort) bool { return c.Name == p.Port.StrVal }
		for _, c := range destination.Spec.Containers {
			if i := slices.IndexFunc(c.Ports, named); i >= 0 {
				number = c.Ports[i].ContainerPort
			}
		}
	}
	if p.EndPort != nil && s.r.IntN(2) == 0 {
		number = *p.EndPort
	}
	if s.r.IntN(6) == 0 {
		number++
	}
	return protocol, uint16(min(number, 65535))
}

// selector of a generated object is always valid.
func selector(s *metav1.LabelSelector) labels.Selector {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return sel
}
