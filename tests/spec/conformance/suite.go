package conformance

import (
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// ErrFormat is the error of files that are not what this package reads.
var ErrFormat = errors.New("not a conformance file")

// Suite is one file of cases.
type Suite struct {
	Source string   // the public suite, with its version
	Notes  []string // how it was recorded
	Cases  []Case
}

// Probes counts the probes of all cases.
func (s *Suite) Probes() int {
	n := 0
	for _, c := range s.Cases {
		for _, step := range c.Steps {
			n += len(step.Probes)
		}
	}
	return n
}

// Case is a sequence of cluster states with the verdicts expected in each.
type Case struct {
	ID    string
	Name  string
	Tags  []string
	Steps []Step // in time order
}

// Step is a full snapshot of a cluster: what an earlier step had and this one
// does not have is gone.
type Step struct {
	Actions []string // what happened since the step before, in words
	Skipped string   // why the suite did not probe, or ""
	Cluster *Cluster
	// NetworkPolicies holds the policies of that kind.
	NetworkPolicies []*networkingv1.NetworkPolicy
	// The admin policies, by kind.
	AdminPolicies    []*v1alpha1.AdminNetworkPolicy
	BaselinePolicies []*v1alpha1.BaselineAdminNetworkPolicy
	ClusterPolicies  []*v1alpha2.ClusterNetworkPolicy
	Probes           []Probe
}

// State returns what the Kubernetes API holds in the step.
func (s Step) State() cluster.State {
	return cluster.State{
		Namespaces: s.Cluster.Namespaces, Pods: s.Cluster.Pods, Nodes: s.Cluster.Nodes, Policies: s.NetworkPolicies,
		AdminPolicies: s.AdminPolicies, BaselinePolicies: s.BaselinePolicies, ClusterPolicies: s.ClusterPolicies,
	}
}

// Cluster is everything of a step but policies.
type Cluster struct {
	ID         string
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Nodes      []*corev1.Node
	Services   []*corev1.Service
	Externals  []External
}

// External is an address outside of the cluster.
type External struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"ip"`
}

// Addr returns the address of a pod ("namespace/name", its first address) or of
// an external.
func (c *Cluster) Addr(name string) (netip.Addr, error) {
	for _, e := range c.Externals {
		if e.Name == name {
			return e.Addr, nil
		}
	}
	for _, p := range c.Pods {
		if p.Namespace+"/"+p.Name == name {
			return netip.ParseAddr(p.Status.PodIP)
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: cluster %s has no %q", ErrFormat, c.ID, name)
}

// Probe is one question with the answer of the suite.
type Probe struct {
	From, To string   // "namespace/pod" or the name of an external
	Flow     api.Flow // between their addresses; without a source port
	PortName string   // name of the port on the destination, or ""
	Allow    bool
	// Ingress and Egress are the verdicts per direction, nil where the suite does
	// not state them.
	Ingress, Egress *bool
	Origin          string // how the suite came to the probe
	// Unstated is set if the suite does not define this flow: Addressing added it to that of the
	// suite, and a block makes the two differ. Allow, Ingress and Egress mean nothing then.
	Unstated bool
}

// Loopback reports whether a pod talks to itself. Suites differ on the verdict;
// Kubernetes permits it always.
func (p Probe) Loopback() bool { return p.From == p.To }

// String returns for example "x/a -> y/b 80/tcp".
func (p Probe) String() string {
	return fmt.Sprintf("%s -> %s %d/%s", p.From, p.To, p.Flow.DstPort, p.Flow.Protocol)
}
