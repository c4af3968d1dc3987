package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/sluice-net/sluice/api/model"

	"github.com/sluice-net/sluice/tests/lab/samples"
)

// manyNames is an egress rule with as many peers as names of ports.
func manyNames(action, portList, port string, n int) string {
	return "{name: r, action: " + action + ", to: [" + strings.Repeat("{namespaces: {}}, ", n) + "], " + portList + ": [" + strings.Repeat(port+", ", n) + "]}"
}

// TestClusterRuleLimitsNamesTimesPeers: a rule beyond the limit fails closed, and the other
// rules are enforced.
func TestClusterRuleLimitsNamesTimesPeers(t *testing.T) {
	const peer, count = 317, "100489"
	for kind, k := range clusterKinds {
		port := "{namedPort: web}"
		if k.ports == "protocols" {
			port = "{destinationNamedPort: web}"
		}
		small := "{action: " + k.allow + ", to: [{namespaces: {}}], " + k.ports + ": [" + port + "]}"
		for _, action := range append([]string{k.allow}, k.others...) {
			t.Run(kind+" "+action, func(t *testing.T) {
				becomes := "denies everything"
				want := &model.ClusterPolicy_Rule{Name: "r", Action: model.ClusterPolicy_ACTION_DENY, AnyPort: true}
				if action == k.allow {
					becomes = "matches nothing"
					want = &model.ClusterPolicy_Rule{Name: "r", Action: model.ClusterPolicy_ACTION_ALLOW, AnyPort: true, Peers: []*model.ClusterPolicy_Peer{{}}}
				}
				msg, problems := ToModel(decodeOne(t, k.yaml(small+", "+manyNames(action, k.ports, port, peer)+", "+small)))
				egress := msg.(*model.ClusterPolicy).GetEgress()
				if diff := cmp.Diff(want, egress[1], protocmp.Transform()); diff != "" {
					t.Errorf("the rule (-want +got):\n%s", diff)
				}
				if len(egress[0].Ports) != 1 || len(egress[2].Ports) != 1 {
					t.Errorf("the rules around it are %v and %v", egress[0], egress[2])
				}
				if text := strings.Join(samples.Texts(problems), "\n"); !strings.Contains(text, ": spec.egress[1]: the rule "+becomes+": its "+count+" combinations") || len(problems) != 1 {
					t.Errorf("problems:\n%s", text)
				}
			})
		}
	}
}

// TestClusterRuleKeepsNamesTimesPeersInLimit covers exactly the limit, and rules with names that no
// pod has.
func TestClusterRuleKeepsNamesTimesPeersInLimit(t *testing.T) {
	k := clusterKinds["AdminNetworkPolicy"]
	names := strings.Repeat("{namedPort: web}, ", 316)
	for title, c := range map[string]struct {
		rule  string
		ports int
	}{
		"as many as allowed":     {"{action: Deny, to: [" + strings.Repeat("{namespaces: {}}, ", 316) + "], ports: [" + names + "]}", 316},
		"numbers, however many":  {"{action: Deny, to: [" + strings.Repeat("{namespaces: {}}, ", 400) + "], ports: [" + strings.Repeat("{portNumber: {port: 80}}, ", 400) + "]}", 400},
		"names beside a network": {"{action: Deny, to: [" + strings.Repeat("{namespaces: {}}, ", 400) + "{networks: [10.0.0.0/8]}], ports: [" + names + "]}", 316},
	} {
		msg, problems := ToModel(decodeOne(t, k.yaml(c.rule)))
		r := msg.(*model.ClusterPolicy).GetEgress()[0]
		if len(r.Ports) != c.ports {
			t.Errorf("%s: %d ports, want %d; %.300v", title, len(r.Ports), c.ports, problems)
		}
	}
}
