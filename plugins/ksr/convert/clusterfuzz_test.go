package convert

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// checkClusterFailsClosed converts a cluster-scoped policy and checks what must hold for any
// policy: no rule is lost or moved; a rule allows only if the source does, and no more peers and
// ports than the source names; every rule that does not allow keeps all that it matches, or denies
// everything; and nothing fails closed without a Problem. The source is what the author wrote, in
// the common form.
func checkClusterFailsClosed(t fataler, obj any, source clusterSpec) {
	msg, problems := ToModel(obj)
	if msg == nil {
		if len(problems) == 0 {
			t.Fatalf("refused without a problem")
		}
		return
	}
	got := msg.(*model.ClusterPolicy)
	if got.Tier == model.ClusterPolicy_TIER_UNSPECIFIED || got.Priority > maxPriority+1 || hasInvalid(got.Subject) || got.Subject.GetNamespaces() == nil || got.Subject.GetPods() == nil {
		t.Fatalf("kept, and it is not known where it stands or whom it is for: %v", got)
	}
	if len(got.Ingress) != len(source.ingress) || len(got.Egress) != len(source.egress) {
		t.Fatalf("%d ingress rules of %d, %d egress rules of %d", len(got.Ingress), len(source.ingress), len(got.Egress), len(source.egress))
	}
	closed := 0
	for i := range source.ingress {
		closed += checkClusterRule(t, got.Ingress[i], &source.ingress[i], source.dialect)
	}
	for i := range source.egress {
		closed += checkClusterRule(t, got.Egress[i], &source.egress[i], source.dialect)
	}
	if closed > len(problems) && len(problems) <= model.MaxProblems {
		t.Fatalf("%d parts are closed, reported are %v", closed, problems)
	}
	first, second := encoded(t, obj), encoded(t, obj)
	id, _ := kinds.IDOf(obj)
	if back, err := model.Decode(id, first); err != nil || !bytes.Equal(first, second) {
		t.Fatalf("bytes %x and %x, read back as %v, %v", first, second, back, err)
	}
}

// checkClusterRule returns how many parts of the rule are closed.
func checkClusterRule(t fataler, r *model.ClusterPolicy_Rule, source *clusterRule, d *dialect) (closed int) {
	if r.Action == model.ClusterPolicy_ACTION_ALLOW && d.actions[source.action] != r.Action || r.Action == model.ClusterPolicy_ACTION_PASS && d.actions[source.action] != r.Action {
		t.Fatalf("action %v of %q", r.Action, source.action)
	}
	if len(r.Peers) == 0 {
		if r.Action != model.ClusterPolicy_ACTION_ALLOW && (r.Action != model.ClusterPolicy_ACTION_DENY || !r.AnyPort || len(r.Ports) > 0) {
			t.Fatalf("neither allows nor denies everything: %v", r)
		}
		closed++
		if r.Action == model.ClusterPolicy_ACTION_DENY {
			return closed
		}
	}
	if r.AnyPort != source.anyPort || r.AnyPort == (len(r.Ports) > 0) || !r.AnyPort && len(r.Ports) != max(1, len(source.ports)) {
		t.Fatalf("ports %v of %v", r, source)
	}
	if utf8.RuneCountInString(r.Name) > maxRuleName || !utf8.ValidString(r.Name) {
		t.Fatalf("name %q", r.Name)
	}
	if d.actions[source.action] == model.ClusterPolicy_ACTION_UNSPECIFIED {
		closed++
	}
	unknown := false
	for _, p := range r.Peers {
		checkClusterPeer(t, p)
		if isUnknown(p) {
			unknown = true
			closed++
		}
	}
	for _, p := range r.Ports {
		if checkClusterPort(t, p) {
			closed++
		}
	}
	if named := slices.ContainsFunc(r.Ports, func(p *model.ClusterPolicy_Port) bool { return p.GetName() != "" }); named && !source.hasPodsOnly() {
		t.Fatalf("the name of a port beside peers that are not pods: %v", r)
	}
	if unknown && r.Action != model.ClusterPolicy_ACTION_ALLOW {
		t.Fatalf("does not allow, and has an unknown peer: %v", r)
	}
	return min(closed, 1) // of one domainNames there are many peers and one Problem
}

func checkClusterPeer(t fataler, p *model.ClusterPolicy_Peer) {
	switch v := p.GetPeer().(type) {
	case *model.ClusterPolicy_Peer_Pods:
		if v.Pods.GetNamespaces() == nil || v.Pods.GetPods() == nil {
			t.Fatalf("half a peer: %v", p)
		}
		checkSelector(t, v.Pods.GetNamespaces())
		checkSelector(t, v.Pods.GetPods())
	case *model.ClusterPolicy_Peer_Nodes:
		checkSelector(t, v.Nodes)
	case *model.ClusterPolicy_Peer_Network:
		if n, err := netip.ParsePrefix(v.Network); err != nil || n != n.Masked() || n.String() != v.Network || n.Addr().Is4In6() {
			t.Fatalf("not canonical: %v", p)
		}
	}
}

// checkClusterPort reports whether the port matches nothing.
func checkClusterPort(t fataler, p *model.ClusterPolicy_Port) bool {
	switch {
	case p.Invalid:
		if p.Port != nil || p.EndPort != 0 {
			t.Fatalf("matches nothing, and says what: %v", p)
		}
	case p.GetName() != "":
		if p.Protocol != model.Protocol_PROTOCOL_UNSPECIFIED || p.EndPort != 0 {
			t.Fatalf("a name with more: %v", p)
		}
	case p.Protocol == model.Protocol_PROTOCOL_UNSPECIFIED || p.GetNumber() < 1 || p.GetNumber() > 65535:
		t.Fatalf("no port: %v", p)
	case p.EndPort != 0 && (p.EndPort < p.GetNumber() || p.EndPort > 65535):
		t.Fatalf("end of range: %v", p)
	}
	return p.Invalid
}

// FuzzConvertClusterPolicy reads one text as the spec of each of the three kinds.
func FuzzConvertClusterPolicy(f *testing.F) {
	f.Fuzz(func(t *testing.T, spec []byte) {
		anp := &v1alpha1.AdminNetworkPolicy{}
		if json.Unmarshal(spec, &anp.Spec) == nil {
			anp.Name = "web"
			checkAdmin(t, anp)
		}
		banp := &v1alpha1.BaselineAdminNetworkPolicy{}
		if json.Unmarshal(spec, &banp.Spec) == nil {
			banp.Name = baselineName
			checkBaseline(t, banp)
		}
		cnp := &v1alpha2.ClusterNetworkPolicy{}
		if json.Unmarshal(spec, &cnp.Spec) == nil {
			cnp.Name = "web"
			checkTier(t, cnp)
		}
	})
}

func checkAdmin(t fataler, p *v1alpha1.AdminNetworkPolicy) {
	checkClusterFailsClosed(t, p, clusterSpec{dialect: &adminDialect, ingress: adminIngress(p.Spec.Ingress), egress: adminEgress(p.Spec.Egress)})
}

func checkBaseline(t fataler, p *v1alpha1.BaselineAdminNetworkPolicy) {
	checkClusterFailsClosed(t, p, clusterSpec{dialect: &baselineDialect, ingress: baselineIngress(p.Spec.Ingress), egress: baselineEgress(p.Spec.Egress)})
}

func checkTier(t fataler, p *v1alpha2.ClusterNetworkPolicy) {
	checkClusterFailsClosed(t, p, clusterSpec{dialect: &tierDialect, ingress: tierIngress(p.Spec.Ingress), egress: tierEgress(p.Spec.Egress)})
}
