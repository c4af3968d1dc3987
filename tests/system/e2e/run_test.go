package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// demo is a server with two clients, of which a policy lets one in.
var demo = `
{apiVersion: v1, kind: Namespace, metadata: {name: demo}}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: demo, labels: {app: server}}
spec: {nodeName: node-1, containers: [{name: c, image: i, ports: [{name: http, containerPort: 80}]}]}
status: {phase: Running, podIPs: [{ip: 10.2.0.1}]}
` + wires.DemoPod("friend", "{ip: 10.2.0.2}") + wires.DemoPod("stranger", "{ip: 10.2.0.3}") + `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server, namespace: demo}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: http}]}]
`

const (
	server, friend, stranger = "10.2.0.1", "10.2.0.2", "10.2.0.3"
)

func pod(name string) api.PodID { return api.PodID{Namespace: "demo", Name: name} }

// attachDemo gives the pods of the demo their interfaces.
func (v *vpp) attachDemo() {
	v.attach(pod("server"), server)
	v.attach(pod("friend"), friend)
	v.attach(pod("stranger"), stranger)
}

// demoEnforced reports every deviation from the demo's policy.
func (v *vpp) demoEnforced() error {
	switch {
	case !v.permits(friend, server, 80):
		return errors.New("the friend is kept out")
	case v.permits(friend, server, 81):
		return errors.New("the friend gets at another port")
	case v.permits(stranger, server, 80):
		return errors.New("the stranger gets in")
	}
	return nil
}

// runAgent starts the agent of the demo's node.
func runAgent(t testing.TB, etcd, vppSocket string) *process {
	t.Helper()
	return startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", etcd, "--vpp-socket", vppSocket)
}

// startDemo enforces the demo in a VPP.
func startDemo(t testing.TB) (v *vpp, etcd string, a *process) {
	t.Helper()
	v = startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	etcd = startEtcd(t)
	store(t, etcd, demo)
	a = runAgent(t, etcd, v.socket)
	a.ready()
	return v, etcd, a
}

// ready waits until the agent enforces what is in its store.
func (p *process) ready() {
	p.t.Helper()
	eventually(p.t, func() error { return isReady(p.socket) })
}

func TestAgentBlocksInterfacesOfUnknownPods(t *testing.T) {
	t.Parallel()
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	etcd := startEtcd(t)
	for ip, name := range map[string]string{server: "server", friend: "friend", stranger: "stranger"} {
		v.attachByName(etcd, pod(name), ip)
	}
	store(t, etcd, demo)
	a := runAgent(t, etcd, v.socket)
	a.ready()
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}

	const late = "10.2.0.4"
	v.attachByName(etcd, pod("late"), late)
	eventually(t, func() error {
		if v.permits(friend, late, 80) || v.permits(late, friend, 80) {
			return errors.New("the pod that is not known is open")
		}
		return nil
	})
	store(t, etcd, demo+wires.DemoPod("late", "{ip: 10.2.0.4}"))
	eventually(t, func() error {
		if !v.permits(friend, late, 80) || !v.permits(late, friend, 80) || v.permits(late, server, 80) {
			return errors.New("the pod is not enforced as it is now")
		}
		return nil
	})
}

func TestAgentEnforcesEtcdStateOnVPPSocket(t *testing.T) {
	t.Parallel()
	v, etcd, a := startDemo(t)
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}

	// A change in etcd is enforced.
	store(t, etcd, strings.ReplaceAll(demo, "{matchLabels: {app: friend}}}]", "{matchLabels: {app: stranger}}}]"))
	eventually(t, func() error {
		if v.permits(friend, server, 80) || !v.permits(stranger, server, 80) {
			return errors.New("the change is not enforced")
		}
		return nil
	})

	// The agent explains, but the packets of a VPP are not its own, and nor is the store.
	eventually(t, func() error { // packets meet the change before VPP has acknowledged all of it
		if out, code := a.ctl("explain", "-v", "demo/friend", "demo/server:http"); code != 1 || !strings.Contains(out, " agrees\n") {
			return fmt.Errorf("explain: exit code %d, want 1 and agreement:\n%s", code, out)
		}
		return nil
	})
	if out, code := a.ctl("inject", "demo/friend", "demo/server:http"); code != 2 || !strings.Contains(out, "embedded dataplane only") {
		t.Errorf("inject: exit code %d, want 2:\n%s", code, out)
	}
	if out, code := a.ctl("apply", "-f", filepath.Join("..", "..", "..", "docs", "examples", "shop")); code != 2 || !strings.Contains(out, "--etcd-endpoints") {
		t.Errorf("apply: exit code %d, want 2 and advice:\n%s", code, out)
	}

	// What is enforced stays enforced without the agent.
	a.stop(syscall.SIGTERM)
	if v.permits(friend, server, 80) {
		t.Error("without the agent the server is open")
	}
}

func TestAgentReportsPodWithoutInterface(t *testing.T) {
	t.Parallel()
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attach(pod("friend"), friend)
	v.attach(pod("server"), server)
	etcd := startEtcd(t)
	store(t, etcd, demo+`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: stranger, namespace: demo}
spec: {podSelector: {matchLabels: {app: stranger}}}
`)
	a := runAgent(t, etcd, v.socket)
	eventually(t, func() error {
		if status, body, err := ask(a.socket, "/readyz"); err != nil || status != 503 || !strings.Contains(string(body), "no interface for pod demo/stranger") {
			return fmt.Errorf("/readyz does not tell of the interface that is missing: %d %s %w", status, body, err)
		}
		return nil
	})
	if !v.permits(friend, server, 80) || v.permits(friend, server, 81) {
		t.Error("the pods that have interfaces are not enforced")
	}
	if out, _ := a.ctl("get", "status"); !strings.Contains(out, "not in sync: ") {
		t.Errorf("status does not tell:\n%s", out)
	}
	v.attach(pod("stranger"), stranger)
	a.ready()
	if v.permits(friend, stranger, 80) {
		t.Error("the late pod is open")
	}
}

func TestAgentReportsEnforcementOfNodes(t *testing.T) {
	t.Parallel()
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	etcd := startEtcd(t)
	store(t, etcd, demo)
	leader := model.Entry{Key: model.LeaderKey(model.DefaultPrefix, "ksr"), Value: []byte("{}")}
	change(t, etcd, func(c *kvstore.Client) error { return c.Write(t.Context(), []model.Entry{leader}, nil) })
	a := startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", etcd, "--vpp-socket", v.socket, "--status-interval", "100ms")
	a.ready()
	// A second node, whose vswitch is not there.
	b := startAgent(t, "run", "--node", "node-2", "--etcd-endpoints", etcd, "--vpp-socket", filepath.Join(socketDir(t), "nobody.sock"), "--status-interval", "100ms")
	eventually(t, func() error {
		out, code := b.ctl("get", "nodes", "--policy", "demo/server")
		if code != 1 || !regexp.MustCompile(`(?m)^node-1 +yes `).MatchString(out) || !regexp.MustCompile(`(?m)^node-2 +pending: `).MatchString(out) {
			return fmt.Errorf("exit code %d:\n%s", code, out)
		}
		return nil
	})
	if out, code := a.ctl("get", "nodes", "--policy", "demo/other"); code != 2 || !strings.Contains(out, "there is no policy demo/other") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	b.stop(syscall.SIGTERM)
	becomes := func(want int, text string) {
		t.Helper()
		eventually(t, func() error {
			if out, code := a.ctl("get", "nodes"); code != want || strings.Contains(out, "node-2") || !strings.Contains(out, text) {
				return fmt.Errorf("exit code %d:\n%s", code, out)
			}
			return nil
		})
	}
	becomes(0, "yes")
	change(t, etcd, func(c *kvstore.Client) error { return c.Write(t.Context(), nil, []string{leader.Key}) })
	becomes(1, "no active reflector")
}
