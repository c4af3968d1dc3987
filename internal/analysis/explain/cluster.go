package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/internal/analysis/expr"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/analysis/services"
	"github.com/sluice-net/sluice/internal/view"
)

// Cluster is the reflected state at one moment, as questions are asked about it.
type Cluster struct {
	Nodes      []*model.Node
	Namespaces []*model.Namespace
	Pods       []*model.Pod
	Policies   []*model.NetworkPolicy
	// ClusterPolicies are the admin policies.
	ClusterPolicies []*model.ClusterPolicy
	// Services and Slices say where packets to services go; no policy depends on them.
	Services []*model.Service
	Slices   []*model.EndpointSlice
	// Controllers are the selectors of controllers, as far as manifests have these.
	Controllers []suggest.Selector
}

// Add takes a message of a kind that a cluster has; it leaves out any other.
func (c *Cluster) Add(msg proto.Message) {
	switch msg := msg.(type) {
	case *model.Node:
		c.Nodes = append(c.Nodes, msg)
	case *model.Namespace:
		c.Namespaces = append(c.Namespaces, msg)
	case *model.Pod:
		c.Pods = append(c.Pods, msg)
	case *model.NetworkPolicy:
		c.Policies = append(c.Policies, msg)
	case *model.ClusterPolicy:
		c.ClusterPolicies = append(c.ClusterPolicies, msg)
	case *model.Service:
		c.Services = append(c.Services, msg)
	case *model.EndpointSlice:
		c.Slices = append(c.Slices, msg)
	}
}

// Objects returns everything that the cluster has, as a store holds it.
func (c Cluster) Objects() ([]view.ChangedObject, error) {
	out := []view.ChangedObject{}
	for _, m := range c.messages() {
		id, err := model.IDOf(m)
		if err != nil {
			return nil, err
		}
		b, err := model.Encode(m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		out = append(out, view.ChangedObject{Kind: string(id.Kind), Namespace: id.Namespace, Name: id.Name, Value: b})
	}
	return out, nil
}

// ClusterOf reads what Objects returned. It fails for an object that is not understood,
// or is there twice.
func ClusterOf(objects []view.ChangedObject) (c Cluster, err error) {
	seen := make(map[model.ID]bool, len(objects))
	for _, o := range objects {
		id := model.ID{Kind: model.Kind(o.Kind), Namespace: o.Namespace, Name: o.Name}
		if seen[id] {
			return c, fmt.Errorf("%s is there twice", id)
		}
		seen[id] = true
		m, err := model.Decode(id, o.Value)
		if err != nil {
			return c, fmt.Errorf("%s: %w", id, err)
		}
		c.Add(m)
	}
	return c, nil
}

// messages returns everything that the cluster has.
func (c Cluster) messages() (out []proto.Message) {
	out = appendMessages(out, c.Nodes)
	out = appendMessages(out, c.Namespaces)
	out = appendMessages(out, c.Pods)
	out = appendMessages(out, c.Policies)
	out = appendMessages(out, c.ClusterPolicies)
	out = appendMessages(out, c.Services)
	return appendMessages(out, c.Slices)
}

func appendMessages[M proto.Message](out []proto.Message, list []M) []proto.Message {
	for _, m := range list {
		out = append(out, m)
	}
	return out
}

// services returns what is known of services.
func (c Cluster) services() services.Cluster {
	return services.Cluster{Services: c.Services, Slices: c.Slices, Pods: c.Pods}
}

// Selectors returns the selectors of services, and of what else is known to select pods.
func (c Cluster) Selectors() []suggest.Selector {
	out := slices.Clone(c.Controllers)
	for _, s := range c.Services {
		out = append(out, suggest.Selector{Namespace: s.GetNamespace(), Labels: LabelSet(s.GetSelector())})
	}
	return out
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

// IsLive reports whether policies see the pod.
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
func Labels(p *model.Pod) labels.Set { return LabelSet(p.GetLabels()) }

// parties resolves one side of a question: what package expr reads.
func (c Cluster) parties(text string) ([]view.Party, error) {
	if ns, name, ok := services.ParseName(text); ok {
		return nil, fmt.Errorf("service %s/%s sends nothing: name pods, as in %s/app=web", ns, name, ns)
	}
	e, err := expr.ParseEndpoint(text)
	switch {
	case err != nil:
		return nil, err
	case e.Addr.IsValid():
		return []view.Party{c.atAddress(e.Addr)}, nil
	case !e.Selects():
		return c.named(api.PodID{Namespace: e.Namespace, Name: e.Name})
	}
	return c.selected(e)
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

func (c Cluster) selected(e expr.Endpoint) (out []view.Party, err error) {
	hidden := ""
	for _, p := range c.Pods {
		switch {
		case e.Namespace != expr.Everywhere && p.GetNamespace() != e.Namespace:
		case e.Selector == nil && p.GetName() != e.Name, e.Selector != nil && !e.Selector.Matches(Labels(p)):
		case IsLive(p) && len(Addresses(p)) > 0:
			out = append(out, partiesOf(p)...)
		case hidden == "":
			hidden = "; what it selects has finished, has no address yet, or is in the host network (name such a pod itself, as in " + PodID(p).String() + ")"
		}
	}
	switch {
	case out != nil:
		return out, nil
	case hidden == "" && expr.IsWord(e.Text):
		return nil, fmt.Errorf("no pod has a label %q; a pod is named with its namespace, as in shop/web-0", e.Text)
	case e.Namespace != expr.Everywhere:
		return nil, fmt.Errorf("no pod with an address is selected by %q in namespace %s%s", e.Pods, e.Namespace, hidden)
	}
	return nil, fmt.Errorf("no pod with an address is selected by %q%s", e.Pods, hidden)
}

func partiesOf(p *model.Pod) (out []view.Party) {
	for _, a := range Addresses(p) {
		out = append(out, view.Party{Name: PodID(p).String(), Pod: PodID(p), Address: a, Node: p.GetNodeName()})
	}
	return out
}
