package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// tierOf returns an admin policy for every pod with rules of ingress.
func tierOf(kind model.ClusterPolicy_Kind, rules ...*model.ClusterPolicy_Rule) *model.ClusterPolicy {
	p := &model.ClusterPolicy{
		Kind: kind, Name: "default", Tier: model.ClusterPolicy_TIER_ADMIN, Priority: 5,
		Subject: &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}, Pods: &model.LabelSelector{}}, Ingress: rules,
	}
	if kind == model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY {
		p.Tier, p.Priority = model.ClusterPolicy_TIER_BASELINE, baselinePriority
	}
	return p
}

// passes reports whether web reaches db on 80/TCP beside these policies; where isolated,
// nothing but an administrator lets it.
func passes(isolated bool, policies ...*model.ClusterPolicy) bool {
	c := Cluster{ClusterPolicies: policies}
	c.Namespaces, c.Pods = twoPods()
	if isolated {
		c.Policies = []*model.NetworkPolicy{isolating()}
	}
	return oracle.New(c.State()).Allowed(api.Flow{Src: webAddr, Dst: dbAddr, Protocol: api.TCP, SrcPort: 1024, DstPort: 80})
}

var everyKind = []model.ClusterPolicy_Kind{
	model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY, model.ClusterPolicy_KIND_CLUSTER_NETWORK_POLICY,
}

func everyPod() *model.ClusterPolicy_Peer { return podsWith(&model.LabelSelector{}) }

func podsWith(pods *model.LabelSelector) *model.ClusterPolicy_Peer {
	return &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Pods{Pods: &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}, Pods: pods}}}
}

// TestStateReadsAdminRules has each rule of a table twice: allowing, beside a
// NetworkPolicy that isolates (of the baseline without, where nothing else decides), and
// denying.
func TestStateReadsAdminRules(t *testing.T) {
	number := func(p model.Protocol, n, end uint32) *model.ClusterPolicy_Port {
		return &model.ClusterPolicy_Port{Protocol: p, Port: &model.ClusterPolicy_Port_Number{Number: n}, EndPort: end}
	}
	tcp, udp := model.Protocol_PROTOCOL_TCP, model.Protocol_PROTOCOL_UDP
	named := func(n string) *model.ClusterPolicy_Port {
		return &model.ClusterPolicy_Port{Port: &model.ClusterPolicy_Port_Name{Name: n}}
	}
	ports := func(list ...*model.ClusterPolicy_Port) *model.ClusterPolicy_Rule {
		return &model.ClusterPolicy_Rule{Peers: []*model.ClusterPolicy_Peer{everyPod()}, Ports: list}
	}
	peers := func(list ...*model.ClusterPolicy_Peer) *model.ClusterPolicy_Rule {
		return &model.ClusterPolicy_Rule{Peers: list, AnyPort: true}
	}
	for name, tc := range map[string]struct {
		rule            *model.ClusterPolicy_Rule
		allowed, denied bool // by the rule
	}{
		"every pod":                         {peers(everyPod()), true, true},
		"other pods":                        {peers(podsWith(both("db", "db"))), false, false},
		"no peers: deny all":                {peers(), false, true},
		"a peer without a field":            {peers(&model.ClusterPolicy_Peer{}), false, true},
		"nil":                               {peers(nil), false, true},
		"one that is not known among two":   {peers(&model.ClusterPolicy_Peer{}, everyPod()), true, true},
		"pods without a selector":           {peers(&model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Pods{Pods: &model.ClusterPolicy_Pods{Pods: &model.LabelSelector{}}}}), false, true},
		"pods without anything":             {peers(&model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Pods{}}), false, true},
		"an invalid selector":               {peers(podsWith(&model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: "app"}}})), false, true},
		"a domain name":                     {peers(&model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_DomainName{DomainName: "example.org"}}), false, true},
		"number":                            {ports(number(tcp, 80, 0)), true, true},
		"range":                             {ports(number(tcp, 79, 81)), true, true},
		"range of one":                      {ports(number(tcp, 80, 80)), true, true},
		"name":                              {ports(named("http")), true, true},
		"another name":                      {ports(named("https")), false, false},
		"no name":                           {ports(named("")), false, false},
		"another number":                    {ports(number(tcp, 81, 0)), false, false},
		"another protocol":                  {ports(number(udp, 80, 0)), false, false},
		"every port of a protocol":          {ports(&model.ClusterPolicy_Port{Protocol: tcp}), true, true},
		"zero":                              {ports(number(tcp, 0, 0)), false, false},
		"beyond 16 bits":                    {ports(number(tcp, 65536+80, 0)), false, false},
		"beyond 31 bits":                    {ports(number(tcp, 1<<31+80, 0)), false, false},
		"an inverted range":                 {ports(number(tcp, 80, 79)), false, false},
		"a range that ends nowhere":         {ports(number(tcp, 80, 1<<31)), false, false},
		"an end without a start":            {ports(&model.ClusterPolicy_Port{Protocol: tcp, EndPort: 90}), false, false},
		"a name with an end":                {ports(&model.ClusterPolicy_Port{Port: &model.ClusterPolicy_Port_Name{Name: "http"}, EndPort: 90}), false, false},
		"invalid":                           {ports(&model.ClusterPolicy_Port{Invalid: true}), false, false},
		"invalid, with a number":            {ports(&model.ClusterPolicy_Port{Protocol: tcp, Port: &model.ClusterPolicy_Port_Number{Number: 80}, Invalid: true}), false, false},
		"nil port":                          {ports(nil), false, false},
		"a number without a protocol":       {ports(number(0, 80, 0)), false, true},
		"a protocol of another age":         {ports(number(9, 81, 0)), false, true},
		"one that is not known of two":      {ports(number(9, 81, 0), number(tcp, 80, 0)), true, true},
		"neither ports nor every port":      {ports(), false, true},
		"every port, and others beside it":  {&model.ClusterPolicy_Rule{Peers: []*model.ClusterPolicy_Peer{everyPod()}, AnyPort: true, Ports: []*model.ClusterPolicy_Port{nil}}, true, true},
		"a network, which ingress has none": {peers(&model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Network{Network: "10.0.0.0/8"}}), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range everyKind {
				tc.rule.Action = model.ClusterPolicy_ACTION_DENY
				if got := !passes(false, tierOf(kind, tc.rule)); got != tc.denied {
					t.Errorf("%s: denied is %t", kind, got)
				}
				tc.rule.Action = model.ClusterPolicy_ACTION_UNSPECIFIED
				if got := !passes(false, tierOf(kind, tc.rule)); got != tc.denied {
					t.Errorf("%s: an action that is not known: denied is %t", kind, got)
				}
				tc.rule.Action = model.ClusterPolicy_ACTION_ALLOW
				if got := passes(true, tierOf(kind, tc.rule)); kind != model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY && got != tc.allowed {
					t.Errorf("%s: allowed is %t", kind, got)
				}
			}
		})
	}
}

func TestStateReadsEgressPeers(t *testing.T) {
	nodes := []*model.Node{{Name: "n1", Labels: []*model.Label{{Key: "role", Value: "edge"}}, Addresses: []string{dbAddr.String()}}}
	network := func(cidr string) *model.ClusterPolicy_Peer {
		return &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Network{Network: cidr}}
	}
	nodesWith := func(s *model.LabelSelector) *model.ClusterPolicy_Peer {
		return &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Nodes{Nodes: s}}
	}
	edge := &model.LabelSelector{MatchLabels: []*model.Label{{Key: "role", Value: "edge"}}}
	for name, tc := range map[string]struct {
		peer            *model.ClusterPolicy_Peer
		allowed, denied bool
	}{
		"network":              {network("10.0.0.0/8"), true, true},
		"another network":      {network("192.0.2.0/24"), false, false},
		"a network that is no": {network("10.0.0.0"), false, true},
		"every node":           {nodesWith(&model.LabelSelector{}), true, true},
		"selected nodes":       {nodesWith(edge), true, true},
		"other nodes":          {nodesWith(both("a", "b")), false, false},
		"nil nodes":            {nodesWith(nil), false, true},
		"pods":                 {everyPod(), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range everyKind {
				p := tierOf(kind)
				rule := &model.ClusterPolicy_Rule{Peers: []*model.ClusterPolicy_Peer{tc.peer}, AnyPort: true}
				p.Egress = []*model.ClusterPolicy_Rule{rule, {AnyPort: true, Action: model.ClusterPolicy_ACTION_DENY}} // what it leaves is denied
				rule.Action = model.ClusterPolicy_ACTION_ALLOW
				c := Cluster{Nodes: nodes, ClusterPolicies: []*model.ClusterPolicy{p}}
				c.Namespaces, c.Pods = twoPods()
				flow := api.Flow{Src: webAddr, Dst: dbAddr, Protocol: api.TCP, DstPort: 80}
				if got := oracle.New(c.State()).Allowed(flow); got != tc.allowed {
					t.Errorf("%s: allowed is %t", kind, got)
				}
				rule.Action, p.Egress = model.ClusterPolicy_ACTION_DENY, p.Egress[:1]
				if got := !oracle.New(c.State()).Allowed(flow); got != tc.denied {
					t.Errorf("%s: denied is %t", kind, got)
				}
			}
		})
	}
}

func TestStateKeepsTierAndPriority(t *testing.T) {
	deny := &model.ClusterPolicy_Rule{Action: model.ClusterPolicy_ACTION_DENY, Peers: []*model.ClusterPolicy_Peer{everyPod()}, AnyPort: true}
	anp := model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY
	with := func(kind model.ClusterPolicy_Kind, change func(*model.ClusterPolicy)) *model.ClusterPolicy {
		p := tierOf(kind, deny)
		change(p)
		return p
	}
	for name, tc := range map[string]struct {
		policy *model.ClusterPolicy
		denies bool
	}{
		"as it is":                        {tierOf(anp, deny), true},
		"baseline":                        {tierOf(model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY, deny), true},
		"cluster":                         {tierOf(model.ClusterPolicy_KIND_CLUSTER_NETWORK_POLICY, deny), true},
		"nil":                             {nil, false},
		"no kind":                         {tierOf(0, deny), false},
		"no tier":                         {with(model.ClusterPolicy_KIND_CLUSTER_NETWORK_POLICY, func(p *model.ClusterPolicy) { p.Tier = 0 }), false},
		"the baseline in the admin tier":  {with(model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY, func(p *model.ClusterPolicy) { p.Tier = model.ClusterPolicy_TIER_ADMIN }), false},
		"an admin policy in the baseline": {with(anp, func(p *model.ClusterPolicy) { p.Tier = model.ClusterPolicy_TIER_BASELINE }), false},
		"the baseline of a priority":      {with(model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY, func(p *model.ClusterPolicy) { p.Priority = 5 }), false},
		"priority 1000":                   {with(anp, func(p *model.ClusterPolicy) { p.Priority = 1000 }), true},
		"priority 1001":                   {with(anp, func(p *model.ClusterPolicy) { p.Priority = 1001 }), false},
		"a priority beyond 31 bits":       {with(anp, func(p *model.ClusterPolicy) { p.Priority = 1 << 31 }), false},
		"no subject":                      {with(anp, func(p *model.ClusterPolicy) { p.Subject = nil }), false},
		"half a subject":                  {with(anp, func(p *model.ClusterPolicy) { p.Subject.Namespaces = nil }), false},
		"an invalid subject": {with(anp, func(p *model.ClusterPolicy) {
			p.Subject.Pods = &model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: "app"}}}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := !passes(false, tc.policy); got != tc.denies {
				t.Errorf("denied is %t", got)
			}
		})
	}
}

func TestStateKeepsAddressesOfNodes(t *testing.T) {
	got := nodeObject(&model.Node{Name: "n1", Labels: []*model.Label{{Key: "role", Value: "edge"}}, Addresses: []string{"192.168.0.1", "fd00::1"}})
	want := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"role": "edge"}}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.168.0.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}
