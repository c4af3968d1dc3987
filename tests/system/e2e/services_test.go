package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
)

// fronts are services before the demo. The first slice is one that the controller of Kubernetes
// would keep, which is not reflected: pods say the same.
const fronts = `{apiVersion: v1, kind: Service, metadata: {name: server, namespace: demo}, spec: {clusterIP: 10.96.7.1, selector: {app: server}, ports: [{name: web, port: 8000, targetPort: http}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: server-x, namespace: demo, labels: {kubernetes.io/service-name: server, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}, addressType: IPv4, endpoints: [{addresses: [10.1.1.1]}], ports: [{name: web, port: 80}]}
---
{apiVersion: v1, kind: Service, metadata: {name: outside, namespace: demo}, spec: {clusterIP: 10.96.7.2, ports: [{port: 443}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: outside-1, namespace: demo, labels: {kubernetes.io/service-name: outside}}, addressType: IPv4, endpoints: [{addresses: [203.0.113.7]}], ports: [{port: 8443}]}
---
{apiVersion: v1, kind: Service, metadata: {name: named, namespace: demo}, spec: {type: ExternalName, externalName: db.example.org}}`

// TestServicesReachAnswersFromAPIServer: and policy does not wait for the right to list them.
func TestServicesReachAnswersFromAPIServer(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.apply(demo)
	c.apply(fronts)
	c.grantWithout("services", "endpointslices")
	etcd := startEtcd(t)
	state := reader(t, []string{etcd})
	k := startKSR(t, c.kubeconfig(c.address), "ksr-0", []string{etcd})
	k.says(200, "ok: leads\nEndpointSlice: cannot be listed: endpointslices.discovery.k8s.io is forbidden")
	holds(t, state, model.KindNetworkPolicy, "demo/server")
	holds(t, state, model.KindService)

	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	a := runAgent(t, etcd, v.socket)
	a.ready()
	eventually(t, v.demoEnforced)
	answers := func(want string, code int, src, dst string) {
		t.Helper()
		eventually(t, func() error {
			out, got := a.ctl("explain", "-v", src, dst)
			if got != code || !strings.Contains(out, want) || strings.Contains(out, "DISAGREES") {
				return errors.New(out)
			}
			return nil
		})
	}
	answers("service demo/server is not known", 2, "demo/friend", "svc/demo/server:8000")

	c.grant()
	holds(t, state, model.KindService, "default/kubernetes", "demo/named", "demo/outside", "demo/server")
	holds(t, state, model.KindEndpointSlice, "demo/outside-1")
	answers("ALLOWED  service demo/server port web (8000/tcp): permitted to its one endpoint", 0, "demo/friend", "svc/demo/server:8000")
	answers("DENIED  10.96.7.1 is service demo/server port web (8000/tcp): permitted to none of 1 endpoint", 1, "demo/stranger", "10.96.7.1:8000")
	answers("demo/friend  ->  203.0.113.7  203.0.113.7:8443", 0, "demo/friend", "svc/demo/outside:443")
	answers("is of type ExternalName", 2, "demo/friend", "svc/demo/named:443")
	k.says(200, "ok: leads\n")

	// A pod that goes is an endpoint no more, and so is one whose labels change.
	c.label("demo", "server", "app", "other")
	answers("it has no endpoints", 1, "demo/friend", "svc/demo/server:8000")
	c.remove("EndpointSlice", "demo", "outside-1")
	answers("it has no endpoints", 1, "demo/friend", "svc/demo/outside:443")
	c.remove("Service", "demo", "outside")
	holds(t, state, model.KindService, "default/kubernetes", "demo/named", "demo/server")
	if out, _ := a.ctl("get", "status"); strings.Contains(out, "problem:") {
		t.Errorf("status:\n%s", out)
	}
}
