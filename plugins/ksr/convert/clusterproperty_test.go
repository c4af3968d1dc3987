package convert

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// tree generates JSON, so that everything that the Go types can read is generated. Much of it is
// invalid.
type tree = rapid.Generator[any]

// fields are what an object may have.
type fields map[string]*tree

// some generates objects that mostly have one of the fields, and sometimes none, two or all.
func (f fields) some() *tree {
	names := slices.Sorted(maps.Keys(f))
	return rapid.Custom(func(t *rapid.T) any {
		out := map[string]any{}
		n := rapid.SampledFrom([]int{1, 1, 1, 1, 0, 2, len(names)}).Draw(t, "fields")
		for _, name := range rapid.Permutation(names).Draw(t, "names")[:min(n, len(names))] {
			out[name] = f[name].Draw(t, name)
		}
		return out
	})
}

// all makes objects that have all of the fields.
func (f fields) all() *tree {
	return rapid.Custom(func(t *rapid.T) any {
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(f)) {
			out[name] = f[name].Draw(t, name)
		}
		return out
	})
}

func anyOf[T any](values ...T) *tree {
	return rapid.Map(rapid.SampledFrom(values), func(v T) any { return v })
}

func listsOf(items *tree, most int) *tree {
	return rapid.Map(rapid.SliceOfN(items, 0, most), func(v []any) any { return v })
}

var (
	genSelectorTree = rapid.Map(genSelector, func(s metav1.LabelSelector) any { return s })
	genPodsTree     = fields{"namespaceSelector": genSelectorTree, "podSelector": genSelectorTree}.all()
	genPortTree     = anyOf(80, 1, 65535, 0, -1, 65536)
	genRangeTree    = fields{"start": genPortTree, "end": genPortTree, "protocol": anyOf("TCP", "UDP", "SCTP", "", "ICMP")}.all()
	genNameTree     = anyOf("web", "dns", "80", "BAD", "")
	genPortsTree    = listsOf(fields{
		"portNumber": fields{"port": genPortTree, "protocol": anyOf("TCP", "UDP", "", "ICMP")}.all(), "portRange": genRangeTree, "namedPort": genNameTree,
	}.some(), 3)
	genDestination   = fields{"destinationPort": fields{"number": genPortTree, "range": genRangeTree}.some()}.all()
	genProtocolsTree = listsOf(fields{"tcp": genDestination, "udp": genDestination, "sctp": genDestination, "destinationNamedPort": genNameTree}.some(), 3)
	genPeerFields    = fields{
		"namespaces": genSelectorTree, "pods": genPodsTree, "nodes": genSelectorTree,
		"networks":    listsOf(anyOf("10.0.0.0/8", "10.1.0.0/8", "fd00::/8", "0.0.0.0/0", "010.0.0.0/8", "::ffff:10.0.0.0/104", "x"), 4),
		"domainNames": listsOf(anyOf("example.org", "*.example.org", "x"), 3),
	}
	genRuleTree = rapid.Custom(func(t *rapid.T) any {
		out := map[string]any{
			"name":   rapid.StringN(0, 110, -1).Draw(t, "name"),
			"action": anyOf("Allow", "Accept", "Deny", "Pass", "Log").Draw(t, "action"),
			"from":   listsOf(fields{"namespaces": genSelectorTree, "pods": genPodsTree}.some(), 3).Draw(t, "from"),
			"to":     listsOf(genPeerFields.some(), 3).Draw(t, "to"),
		}
		if rapid.Bool().Draw(t, "has ports") {
			out["ports"], out["protocols"] = genPortsTree.Draw(t, "ports"), genProtocolsTree.Draw(t, "protocols")
		}
		return out
	})
	genClusterSpec = rapid.Map(fields{
		"tier": anyOf("Admin", "Baseline", "Admin", "Baseline", "x"), "priority": anyOf(0, 1, 500, 1000, -1, 1001),
		"subject": fields{"namespaces": anyOf(map[string]any{}), "pods": genPodsTree}.some(),
		"ingress": listsOf(genRuleTree, 3), "egress": listsOf(genRuleTree, 3),
	}.all(), func(v any) []byte {
		text, _ := json.Marshal(v) // of maps, lists, samples.Texts and numbers
		return text
	})
)

// clusterPolicies returns equivalent policies of the three kinds, as far as possible.
func clusterPolicies(t fataler, spec []byte) (*v1alpha1.AdminNetworkPolicy, *v1alpha1.BaselineAdminNetworkPolicy, *v1alpha2.ClusterNetworkPolicy) {
	anp, banp, cnp := &v1alpha1.AdminNetworkPolicy{}, &v1alpha1.BaselineAdminNetworkPolicy{}, &v1alpha2.ClusterNetworkPolicy{}
	anp.Name, banp.Name, cnp.Name = "web", baselineName, "web"
	for _, into := range []any{&anp.Spec, &banp.Spec, &cnp.Spec} {
		if err := json.Unmarshal(spec, into); err != nil {
			t.Fatalf("%v of %s", err, spec)
		}
	}
	return anp, banp, cnp
}

func TestToModelOfInvalidClusterPolicyFailsClosed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anp, banp, cnp := clusterPolicies(t, genClusterSpec.Draw(t, "spec"))
		before := []any{anp.DeepCopy(), banp.DeepCopy(), cnp.DeepCopy()}
		checkAdmin(t, anp)
		checkBaseline(t, banp)
		checkTier(t, cnp)
		for i, after := range []any{anp, banp, cnp} {
			was, _ := json.Marshal(before[i])
			if is, _ := json.Marshal(after); !bytes.Equal(was, is) {
				t.Fatalf("the object was changed from\n%s\nto\n%s", was, is)
			}
		}
	})
}

// TestToModelOfClusterPolicyIgnoresOrder: the order of sets and maps is
// irrelevant; that of peers, ports and rules is not.
func TestToModelOfClusterPolicyIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, _, cnp := clusterPolicies(t, genClusterSpec.Draw(t, "spec"))
		other := cnp.DeepCopy()
		for _, rule := range other.Spec.Egress {
			for i := range rule.To {
				p := &rule.To[i]
				p.Networks, p.DomainNames = shuffled(t, p.Networks, false), shuffled(t, p.DomainNames, false)
				for _, s := range []*metav1.LabelSelector{p.Namespaces, p.Nodes} {
					if s != nil {
						s.MatchLabels = rebuilt(t, s.MatchLabels)
					}
				}
			}
		}
		msg, _ := ToModel(cnp)
		if again, _ := ToModel(other); (msg == nil) != (again == nil) || msg != nil && !bytes.Equal(encoded(t, cnp), encoded(t, other)) {
			t.Fatalf("%v\nand\n%v", cnp, other)
		}
	})
}

func TestToModelOfNodeIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: genName.Draw(t, "name"), Labels: genLabels.Draw(t, "labels")}}
		for _, text := range rapid.SliceOfN(genIP, 0, 5).Draw(t, "addresses") {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
				Type: rapid.SampledFrom([]corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeHostName}).Draw(t, "type"), Address: text})
		}
		other := n.DeepCopy()
		other.Labels = rebuilt(t, n.Labels)
		other.Status.Addresses = shuffled(t, n.Status.Addresses, true)
		if !bytes.Equal(encoded(t, n), encoded(t, other)) {
			t.Fatalf("%v\nand\n%v", n, other)
		}
	})
}
