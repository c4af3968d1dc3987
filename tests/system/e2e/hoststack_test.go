package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// TestAgentEnforcesAndExplainsBothRenderers runs an agent with ACLs and session rules on
// one vswitch. The application namespaces of one pod have names of their own, which are in etcd;
// that of another has the name of its pod.
func TestAgentEnforcesAndExplainsBothRenderers(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	store(t, etcd, demo)
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	named, second, plain := v.sw.AddNamespace("apps/7"), v.sw.AddNamespace("apps/8"), v.sw.AddNamespace("demo/friend")
	writeKey(t, etcd, model.AppNamespaceKey(model.DefaultPrefix, "node-1", "demo", "stranger", "apps/7"))
	a := startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", etcd, "--vpp-socket", v.socket, "--renderers", "acl,session")
	a.ready()
	connects := func(namespace uint32, src string) bool {
		f := api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(server), Protocol: api.TCP, SrcPort: 40000, DstPort: 80}
		return v.sw.Connect(namespace, f).Action == api.Permit
	}
	if v.permits(stranger, server, 80) || !v.permits(friend, server, 80) {
		t.Error("ACLs do not enforce the policy")
	}
	if connects(named, stranger) || !connects(plain, friend) {
		t.Error("session rules do not enforce the policy")
	}
	if !connects(second, stranger) {
		t.Fatal("a namespace that is nobody's is restricted")
	}
	writeKey(t, etcd, model.AppNamespaceKey(model.DefaultPrefix, "node-1", "demo", "stranger", "apps/8"))
	eventually(t, func() error {
		if connects(named, stranger) || connects(second, stranger) {
			return fmt.Errorf("connects by its namespaces: %t, %t", connects(named, stranger), connects(second, stranger))
		}
		return nil
	})
	for source, verdict := range map[string]string{"demo/friend": "ALLOWED", "demo/stranger": "DENIED"} {
		out, _ := a.ctl("explain", "-v", source, "demo/server:http")
		for _, want := range []string{"acl", "session", verdict, "the renderers agree with each other"} {
			if !strings.Contains(out, want) {
				t.Errorf("explain of %s does not say %q:\n%s", source, want, out)
			}
		}
	}
}

// TestAgentIsReadyWithHostStackOnlyPod has a pod with a policy that has no
// interface, and an application namespace. Without one it is pending.
func TestAgentIsReadyWithHostStackOnlyPod(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	store(t, etcd, demo)
	store(t, etcd, `
{apiVersion: v1, kind: Pod, metadata: {name: lonely, namespace: demo, labels: {app: server}}, spec: {nodeName: node-1, containers: [{name: c, image: i}]}, status: {phase: Running, podIP: 10.88.0.77}}
`)
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	a := startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", etcd, "--vpp-socket", v.socket, "--renderers", "acl,session")
	eventually(t, func() error {
		if err := isReady(a.socket); err == nil || !strings.Contains(err.Error(), "demo/lonely") {
			return errors.Join(errors.New("without a namespace: want not ready because of demo/lonely"), err)
		}
		return nil
	})
	lonely := v.sw.AddNamespace("apps/9")
	writeKey(t, etcd, model.AppNamespaceKey(model.DefaultPrefix, "node-1", "demo", "lonely", "apps/9"))
	a.ready()
	out := api.Flow{Src: netip.MustParseAddr("10.88.0.77"), Dst: netip.MustParseAddr(stranger), Protocol: api.TCP, SrcPort: 40000, DstPort: 80}
	if v.sw.Connect(lonely, out).Action != api.Permit {
		t.Error("what the pod may send does not pass")
	}
}
