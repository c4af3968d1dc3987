package convert

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api/model"
)

// The three kinds of cluster-scoped policies have separate Go types, which differ more in names
// than in meaning. adminpolicy.go and tierpolicy.go convert them to the common form below, without
// validating them.

// dialect holds the terms that a kind uses.
type dialect struct {
	kind        model.ClusterPolicy_Kind
	noun        string // the kind with its article
	actions     map[string]model.ClusterPolicy_Action
	wants       string // the actions
	egressPeers string // possible peers of an egress rule
	portList    string // the field of a rule
	masked      bool   // networks may have no bits behind their prefix
}

var (
	adminDialect = dialect{
		kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, noun: "an AdminNetworkPolicy",
		actions: map[string]model.ClusterPolicy_Action{
			string(v1alpha1.AdminNetworkPolicyRuleActionAllow): model.ClusterPolicy_ACTION_ALLOW,
			string(v1alpha1.AdminNetworkPolicyRuleActionDeny):  model.ClusterPolicy_ACTION_DENY,
			string(v1alpha1.AdminNetworkPolicyRuleActionPass):  model.ClusterPolicy_ACTION_PASS,
		},
		wants: "Allow, Deny or Pass", egressPeers: "namespaces, pods, nodes, networks and domainNames",
		portList: "ports",
	}
	baselineDialect = dialect{ // there is no later tier to pass to
		kind: model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY, noun: "a BaselineAdminNetworkPolicy",
		actions: map[string]model.ClusterPolicy_Action{
			string(v1alpha1.BaselineAdminNetworkPolicyRuleActionAllow): model.ClusterPolicy_ACTION_ALLOW,
			string(v1alpha1.BaselineAdminNetworkPolicyRuleActionDeny):  model.ClusterPolicy_ACTION_DENY,
		},
		wants: "Allow or Deny", egressPeers: "namespaces, pods, nodes and networks",
		portList: "ports",
	}
	tierDialect = dialect{
		kind: model.ClusterPolicy_KIND_CLUSTER_NETWORK_POLICY, noun: "a ClusterNetworkPolicy",
		actions: map[string]model.ClusterPolicy_Action{
			string(v1alpha2.ClusterNetworkPolicyRuleActionAccept): model.ClusterPolicy_ACTION_ALLOW,
			string(v1alpha2.ClusterNetworkPolicyRuleActionDeny):   model.ClusterPolicy_ACTION_DENY,
			string(v1alpha2.ClusterNetworkPolicyRuleActionPass):   model.ClusterPolicy_ACTION_PASS,
		},
		wants: "Accept, Deny or Pass", egressPeers: "namespaces, pods, nodes, networks and domainNames",
		portList: "protocols", masked: true,
	}
)

// clusterSpec is the spec of a policy.
type clusterSpec struct {
	dialect         *dialect
	name            string
	annotations     map[string]string
	tier            model.ClusterPolicy_Tier
	priority        int32
	subject         clusterPeer // namespaces or pods
	ingress, egress []clusterRule
}

// clusterRule is a rule of any kind.
type clusterRule struct {
	name, action string
	peers        []clusterPeer
	anyPort      bool // the list of ports is missing
	ports        []clusterPort
}

// clusterPeer has exactly one field set, unless it is invalid. An empty list counts as not set.
type clusterPeer struct {
	namespaces  *metav1.LabelSelector
	pods        *namespacedPods
	nodes       *metav1.LabelSelector
	networks    []string
	domainNames []string
}

// namespacedPods are pods in namespaces.
type namespacedPods struct{ namespaces, pods *metav1.LabelSelector }

// clusterPort is one number, a range or a name; without a form it is invalid.
type clusterPort struct {
	form        portForm
	protocol    string
	first, last int32
	named       string
}

// portForm names the fields of a port, below its path in the list of ports.
type portForm struct {
	at          []string // the field that is set; empty for an invalid port
	first, last string   // the fields of the numbers; both for a range
	proper      bool     // the range must have more than one port
}

func (p portForm) place(port place) place {
	for _, name := range p.at {
		port = port.child(name)
	}
	return port
}

// only returns the only form, or a port without a form if there is not exactly one.
func only(forms []clusterPort) clusterPort {
	if len(forms) != 1 {
		return clusterPort{}
	}
	return forms[0]
}

// eachOf returns the results of f for every item.
func eachOf[A, B any](list []A, f func(A) B) []B {
	out := make([]B, 0, len(list))
	for _, x := range list {
		out = append(out, f(x))
	}
	return out
}

func textOf[T ~string](s T) string { return string(s) }
