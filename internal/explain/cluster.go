package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/internal/services"
	"github.com/sluice-net/sluice/internal/view"
)

// Cluster is the reflected state at one moment, as questions are asked about it.
type Cluster struct {
	Nodes      []*model.Node
	Namespaces []*model.Namespace
	Pods       []*model.Pod
	Policies   []*model.NetworkPolicy
	// ClusterPolicies are those of administrators.
	ClusterPolicies []*model.ClusterPolicy
	// Services and Slices say where packets to services go; no policy depends on them.
	Services []*model.Service
	Slices   []*model.EndpointSlice
}

// services returns what is known of services.
func (c Cluster) services() services.Cluster {
	return services.Cluster{Services: c.Services, Slices: c.Slices, Pods: c.Pods}
}

// State returns the Kubernetes objects that the oracle works on, see the function.
func (c Cluster) State() oracle.State {
	s := State(c.Namespaces, c.Pods, c.Policies)
	addTiers(&s, c.Nodes, c.ClusterPolicies)
	return s
}

// PodID returns the name of a pod.
func PodID(p *model.Pod) api.PodID {
	return api.PodID{Namespace: p.GetNamespace(), Name: p.GetName()}
}

// IsLive says whether policies see the pod.
func IsLive(p *model.Pod) bool { return !p.GetHostNetwork() && !hasFinished(p) }

func hasFinished(p *model.Pod) bool {
	return p.GetPhase() == model.Pod_PHASE_SUCCEEDED || p.GetPhase() == model.Pod_PHASE_FAILED
}

// Addresses returns the addresses of a pod's status, those of its node for a pod in
// the host network.
func Addresses(p *model.Pod) (out []netip.Addr) {
	for _, s := range p.GetIps() {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// Labels returns the labels of a pod.
func Labels(p *model.Pod) labels.Set { return labelMap(p.GetLabels()) }

// selectorSigns tell a selector from a name.
const selectorSigns = "=!(, "

// wildcard selects all pods.
const wildcard = "*"

// parties resolves one side of a question: an address, namespace/pod,
// namespace/selector or a selector.
func (c Cluster) parties(text string) ([]view.Party, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return []view.Party{c.atAddress(a.Unmap().WithZone(""))}, nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return nil, fmt.Errorf("%s is a block: ask about one address of it, such as %s", text, p.Addr())
	}
	if ns, name, ok := services.ParseName(text); ok {
		return nil, fmt.Errorf("service %s/%s sends nothing: name pods, as in %s/app=web", ns, name, ns)
	}
	ns, rest, scoped := strings.Cut(text, "/")
	if scoped && rest != wildcard && !strings.ContainsAny(rest, selectorSigns) {
		return c.named(api.PodID{Namespace: ns, Name: rest})
	}
	// A name of a namespace has no dot. Otherwise the slash is part of a label's key.
	if !scoped || strings.ContainsAny(ns, selectorSigns+".") {
		ns, rest = "", text
	}
	return c.selected(ns, rest)
}

// atAddress returns the pod that has an address. An address of several pods stays
// one: a packet to it is about all of them.
func (c Cluster) atAddress(a netip.Addr) view.Party {
	out := view.Party{Name: a.String(), Address: a}
	for _, p := range c.Pods {
		if !IsLive(p) || !slices.Contains(Addresses(p), a) {
			continue
		}
		if out.Pod != (api.PodID{}) {
			return view.Party{Name: a.String(), Address: a}
		}
		out.Name, out.Pod, out.Node = PodID(p).String(), PodID(p), p.GetNodeName()
	}
	return out
}

// named returns one pod at each of its addresses. One in the host network is at
// those of its node; one that waits for an address is there without.
func (c Cluster) named(id api.PodID) ([]view.Party, error) {
	i := slices.IndexFunc(c.Pods, func(p *model.Pod) bool { return PodID(p) == id })
	if i < 0 {
		return nil, c.unknown(id)
	}
	p := c.Pods[i]
	out := partiesOf(p)
	switch {
	case hasFinished(p):
		return nil, fmt.Errorf("pod %s has finished: it has no address any more, and policies do not see it", id)
	case out != nil:
		return out, nil
	case p.GetHostNetwork():
		return nil, fmt.Errorf("pod %s runs in the host network, and the address of its node is not known yet", id)
	}
	return []view.Party{{Name: id.String(), Pod: id, Node: p.GetNodeName()}}, nil
}

// unknown says which pods there are instead.
func (c Cluster) unknown(id api.PodID) error {
	var names []string
	for _, p := range c.Pods {
		if p.GetNamespace() == id.Namespace {
			names = append(names, p.GetName())
		}
	}
	if names == nil {
		return fmt.Errorf("pod %s is not known, and neither is any other of namespace %s", id, id.Namespace)
	}
	slices.Sort(names)
	return fmt.Errorf("pod %s is not known; namespace %s has %s", id, id.Namespace, services.Few(names))
}

func (c Cluster) selected(ns, selector string) (out []view.Party, err error) {
	sel, err := labels.Parse(selector)
	if selector == wildcard {
		sel, err = labels.Everything(), nil
	}
	if err != nil || selector == "" {
		return nil, fmt.Errorf("%q is neither an address, nor namespace/pod, nor a selector such as app=web", selector)
	}
	hidden := ""
	for _, p := range c.Pods {
		switch {
		case ns != "" && p.GetNamespace() != ns || !sel.Matches(Labels(p)):
		case IsLive(p) && len(Addresses(p)) > 0:
			out = append(out, partiesOf(p)...)
		case hidden == "":
			hidden = "; what it selects has finished, has no address yet, or is in the host network (name such a pod itself, as in " + PodID(p).String() + ")"
		}
	}
	switch {
	case out != nil:
		return out, nil
	case ns == "" && hidden == "" && !strings.ContainsAny(selector, selectorSigns):
		return nil, fmt.Errorf("no pod has a label %q; a pod is named with its namespace, as in shop/web-0", selector)
	case ns != "":
		return nil, fmt.Errorf("no pod with an address is selected by %q in namespace %s%s", selector, ns, hidden)
	}
	return nil, fmt.Errorf("no pod with an address is selected by %q%s", selector, hidden)
}

func partiesOf(p *model.Pod) (out []view.Party) {
	for _, a := range Addresses(p) {
		out = append(out, view.Party{Name: PodID(p).String(), Pod: PodID(p), Address: a, Node: p.GetNodeName()})
	}
	return out
}
