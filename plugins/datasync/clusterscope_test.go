package datasync_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// clusterScoped is one object of each kind that is in no namespace.
const clusterScoped = `apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
status: {addresses: [{type: InternalIP, address: 192.168.0.1}, {type: ExternalIP, address: "2001:db8::1"}, {type: Hostname, address: n1}]}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: guard}
spec:
  priority: 0
  subject: {pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {}}}
  ingress: [{name: monitoring, action: Allow, from: [{namespaces: {matchLabels: {role: monitoring}}}], ports: [{namedPort: metrics}, {portRange: {start: 9000, end: 9100}}]}]
  egress: [{action: Pass, to: [{networks: [10.0.0.0/8, "fd00::/8"]}, {nodes: {}}]}, {action: Deny, to: [{domainNames: ["*.example.org"]}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec: {subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: guard}
spec: {tier: Baseline, priority: 1000, subject: {namespaces: {}}, egress: [{action: Accept, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 53}}}]}]}
`

// TestWatcherDeliversClusterScopedObjects: from manifests through a real etcd to a
// consumer, in a snapshot and as changes. A name in two kinds is two objects.
func TestWatcherDeliversClusterScopedObjects(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback})
	objects, problems := manifests.Decode(strings.NewReader(clusterScoped), "f")
	values, more := convert.All(objects)
	if len(values) != 4 || len(problems) > 0 || len(more) != 2 { // of the names, and of what they make of the rule
		t.Fatalf("%d values, problems %v and %v", len(values), problems, more)
	}
	reflector := reflect.NewReflector(s.Client(), model.DefaultPrefix, quiet)
	apply := func(values ...proto.Message) {
		t.Helper()
		if _, err := reflector.Apply(t.Context(), values); err != nil {
			t.Fatal(err)
		}
	}
	apply(values[:2]...)
	c := run(t, datasync.Config{Store: dial(t, s)})
	want := state{}.add(values[:2]...)
	c.reach(t, want)
	apply(values[2:]...)
	c.reach(t, want.add(values[2:]...))

	node := proto.CloneOf(values[slices.IndexFunc(values, isNode)].(*model.Node))
	node.Addresses = node.Addresses[:1]
	apply(node)
	guard := model.ID{Kind: model.KindAdminNetworkPolicy, Name: "guard"}
	if _, err := reflector.Delete(t.Context(), []model.ID{guard}); err != nil {
		t.Fatal(err)
	}
	delete(want, guard)
	c.reach(t, want.add(node))
}

func isNode(m proto.Message) bool {
	_, ok := m.(*model.Node)
	return ok
}
