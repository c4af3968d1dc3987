package main

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// agents is what deploy/ calls the agents.
func (l *lab) agents() string {
	if l.onVPP() {
		return "daemonset/sluice-agent-vpp"
	}
	return "daemonset/sluice-agent-xdp"
}

// watched is a space with traffic that is permitted and traffic that is not, in both directions and
// on both nodes.
type watched struct {
	space
	permitted, denied []*traffic
	stream            *stream
}

func (s space) ready() {
	s.t.Helper()
	s.must(s.kube("", "-n", s.name, "wait", "--for=condition=Ready", "pods", "--all", "--timeout", patience.String()))
}

// address returns that of a pod, in the main family.
func (s space) address(pod, port string) string {
	s.t.Helper()
	var ip string
	if err := await("the address of "+pod, func() error {
		ip = s.get("pod/"+pod, ".status.podIP")
		if ip == "" {
			return errors.New("it has none")
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return net.JoinHostPort(ip, port)
}

func newWatched(t *testing.T, name string) *watched {
	w := &watched{space: newSpace(t, name)}
	w.apply(shop + server("server", "server", 1) + server("other", "server", 2) + server("friend", "friend", 2) + server("stranger", "stranger", 1) + server("far", "stranger", 2))
	w.ready()
	return w
}

// begin starts the traffic.
func (w *watched) begin() {
	w.t.Helper()
	w.permitted = []*traffic{
		w.keepAsking("friend", "tcp", w.address("server", httpPort), true),
		w.keepAsking("friend", "udp", w.address("other", udpPort), true),
		w.keepAsking("stranger", "tcp", w.address("far", httpPort), true),
		w.keepAsking(nodeName(1), "tcp", w.address("server", httpPort), true),
	}
	w.denied = []*traffic{
		w.keepAsking("stranger", "tcp", w.address("server", httpPort), false),
		w.keepAsking("stranger", "udp", w.address("other", udpPort), false),
		w.keepAsking("far", "tcp", w.address("other", httpPort), false),
		w.keepAsking("friend", "tcp", w.address("stranger", httpPort), false),
		w.keepAsking("server", "udp", w.address("stranger", udpPort), false),
	}
	w.stream = w.keepTalking("friend", w.address("server", httpPort))
}

func (w *watched) end() {
	w.t.Helper()
	for _, t := range append(w.permitted, w.denied...) {
		t.check(w.t)
	}
	w.stream.check(w.t)
}

// TestClusterUpdatesAgents has the agents started anew, one node after the other, by a rollout and
// by kill -9: nothing is lost, and nothing passes that must not. Pods that are made meanwhile are
// isolated from birth.
func TestClusterUpdatesAgents(t *testing.T) {
	w := newWatched(t, "update")
	w.begin()
	target := w.address("server", httpPort)
	for _, restart := range []func(){
		func() { w.must(w.kube("", "-n", "kube-system", "rollout", "restart", w.agents())) },
		func() {
			for n := range w.Nodes {
				w.must(w.run(nodeName(n+1), "", "pkill", "-9", "-x", "sluice-agent"))
			}
		},
	} {
		restart()
		w.apply(client("late-1", "stranger", target, 1) + client("late-2", "stranger", target, 2))
		w.must(w.kube("", "-n", "kube-system", "rollout", "status", w.agents(), "--timeout", patience.String()))
		if got := w.phases(); got["Failed"] != 2 {
			t.Errorf("pods that were made meanwhile and may not connect: %v", got)
		}
		w.must(w.kube("", "-n", w.name, "delete", "pods", "-l", "once=true"))
	}
	w.end()
}

// TestClusterRestartsParts has everything else of a node, the reflector and the API server end at
// once.
func TestClusterRestartsParts(t *testing.T) {
	w := newWatched(t, "parts")
	w.begin()
	for _, part := range []struct{ machine, program string }{
		{nodeName(1), "kubelet"}, {nodeName(2), "kube-proxy"}, {nodeName(1), "sluice-ksr"}, {nodeName(2), "sluice-ksr"}, {control, "kube-apiserver"}, {control, "etcd"},
	} {
		// The reflector runs on one of the nodes.
		if out, err := w.run(part.machine, "", "pkill", "-9", "-x", part.program[:min(15, len(part.program))]); err != nil && part.program != "sluice-ksr" {
			t.Fatal(out, err)
		}
	}
	if err := await("the API server", func() error { _, err := w.kube("", "get", "--raw", "/readyz"); return err }); err != nil {
		t.Fatal(err)
	}
	// A change gets through to the nodes again: friends may not any more.
	w.permitted[0].stop()
	w.permitted[1].stop()
	w.stream.stop()
	if err := await("a change of policy", func() error {
		_, err := w.kube("", "-n", w.name, "label", "--overwrite", "pod/friend", "app=nobody")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := await("the end of a permission", func() error {
		if _, err := ask(w.network("friend"), "tcp", w.address("server", httpPort), deniedWait); err == nil {
			return errors.New("it is permitted still")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, x := range append(w.permitted, w.denied[:3]...) { // those that a friend sends are none any more
		x.check(t)
	}
	w.stream.check(t)
}

// TestClusterRestartsNode turns a node off and on: /run, pins, interfaces and processes are gone;
// the file of state stays. Its pods are isolated from birth again, and the other node is not
// disturbed.
func TestClusterRestartsNode(t *testing.T) {
	w := newWatched(t, "reboot")
	here := []*traffic{
		w.keepAsking(nodeName(1), "tcp", w.address("server", httpPort), true),
		w.keepAsking("stranger", "tcp", w.address("server", httpPort), false),
	}
	// It connects again and again, and has succeeded for good once it may.
	target := w.address("server", httpPort)
	w.apply(strings.ReplaceAll(client("again", "stranger", target, 2), "restartPolicy: Never", "restartPolicy: OnFailure"))
	const restarts = ".status.containerStatuses[0].restartCount"
	before := w.get("pod/other", restarts)
	w.restart(2)
	if err := await("the node's pods", func() error {
		if now := w.get("pod/other", restarts); now == before {
			return errors.New("pod other runs since before")
		}
		_, err := w.kube("", "-n", w.name, "wait", "--for=condition=Ready", "pod/other", "pod/far", "pod/friend", "--timeout=10s")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"friend", "server", true}, {"friend", "other", true}, {"far", "other", false}, {"far", "server", false}, {"other", "far", false}, {nodeName(2), "other", true}, {nodeName(1), "other", false},
	} {
		wait := deniedWait
		if c.want {
			wait = permittedWait
		}
		if _, err := ask(w.network(c.from), "tcp", w.address(c.to, httpPort), wait); (err == nil) != c.want {
			t.Errorf("%s to %s: %v, want an answer: %t", c.from, c.to, err, c.want)
		}
	}
	if phase := w.get("pod/again", ".status.phase"); phase == "Succeeded" {
		t.Error("a pod that may not reached a server while its node started")
	}
	for _, x := range here {
		x.check(t)
	}
}

// restart turns a node off and on, with the program that started it.
func (s space) restart(n int) {
	s.t.Helper()
	if out, err := exec.Command(s.path("kube"), "--dir", s.dir, "restart", nodeName(n)).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v", out, err)
	}
}

// TestClusterDrainsNode moves all pods of a node, with a Deployment whose pods must be isolated
// from birth where they come.
func TestClusterDrainsNode(t *testing.T) {
	w := newWatched(t, "drain")
	w.apply(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: moving}
spec:
  replicas: 4
  selector: {matchLabels: {app: moving}}
  template:
    metadata: {labels: {app: moving}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: ` + agnhostImage + `, args: [netexec]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: moving}
spec:
  podSelector: {matchLabels: {app: moving}}
  ingress: [{from: [{podSelector: {matchLabels: {app: visitor}}}]}]
`)
	w.must(w.kube("", "-n", w.name, "rollout", "status", "deployment/moving", "--timeout", patience.String()))
	stays := []*traffic{
		w.keepAsking(nodeName(1), "tcp", w.address("server", httpPort), true),
		w.keepAsking("stranger", "tcp", w.address("server", httpPort), false),
	}
	t.Cleanup(func() { w.must(w.kube("", "uncordon", nodeName(2))) })
	w.must(w.kube("", "drain", nodeName(2), "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout", patience.String()))
	w.must(w.kube("", "-n", w.name, "rollout", "status", "deployment/moving", "--timeout", patience.String()))
	w.apply(server("visitor", "visitor", 1))
	w.ready()
	for pod := range strings.FieldsSeq(w.must(w.kube("", "-n", w.name, "get", "pods", "-l", "app=moving", "-o", "jsonpath={.items[*].metadata.name}"))) {
		to := w.address(pod, httpPort)
		if _, err := ask(w.network("visitor"), "tcp", to, permittedWait); err != nil {
			t.Errorf("visitor to %s: %v", pod, err)
		}
		if _, err := ask(w.network("stranger"), "tcp", to, deniedWait); err == nil {
			t.Errorf("stranger reaches %s", pod)
		}
	}
	for _, x := range stays {
		x.check(t)
	}
	if out := w.must(w.run(nodeName(2), "", w.Bin+"/sluicectl", "get", "endpoints", "-o", "json")); strings.Contains(out, w.name+"/") {
		t.Errorf("endpoints of pods that are gone: %s", out)
	}
}

// TestClusterFollowsStatefulSets has pods come back under their names with other addresses, again
// and again: their permission goes with the name, and not with the address.
func TestClusterFollowsStatefulSets(t *testing.T) {
	s := newSpace(t, "stateful")
	s.apply(shop + server("server", "server", 1) + `---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set}
spec:
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: friend}}
  template:
    metadata: {labels: {app: friend}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: ` + agnhostImage + `, args: [netexec]}]
`)
	s.must(s.kube("", "-n", s.name, "rollout", "status", "statefulset/set", "--timeout", patience.String()))
	s.ready()
	target, seen := s.address("server", httpPort), map[string]bool{}
	for i := range 4 {
		old := s.address("set-0", httpPort)
		seen[old] = true
		uid := s.get("pod/set-0", ".metadata.uid")
		s.must(s.kube("", "-n", s.name, "delete", "pod", "set-0", "--wait=false"))
		if err := await("the next set-0", func() error {
			now, err := s.kube("", "-n", s.name, "get", "pod", "set-0", "-o", "jsonpath={.metadata.uid} {.status.phase}")
			if err == nil && (strings.HasPrefix(now, uid) || !strings.HasSuffix(now, "Running")) {
				err = fmt.Errorf("there is %q", now)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		// A stranger takes the next address, and gets no permission with it.
		s.apply(client(fmt.Sprint("thief-", i), "stranger", target, 1+i%s.Nodes))
		if _, err := ask(s.network("set-0"), "tcp", target, permittedWait); err != nil {
			t.Errorf("set-0 with the address %s instead of %s: %v", s.address("set-0", httpPort), old, err)
		}
		if _, err := ask(s.network("set-1"), "tcp", target, permittedWait); err != nil {
			t.Errorf("set-1: %v", err)
		}
	}
	if len(seen) < 2 {
		t.Errorf("the addresses were %v: they did not change", seen)
	}
	if got := s.phases(); got["Failed"] != 4 {
		t.Errorf("strangers: %v", got)
	}
}

// TestClusterForgetsJobs checks that ended pods keep no rules: a pod that gets the address of an
// ended one is judged by its own labels, while the object of the ended pod still exists. No agent
// reports a failure.
func TestClusterForgetsJobs(t *testing.T) {
	s := newSpace(t, "jobs")
	s.apply(shop + server("server", "server", 1))
	s.ready()
	target := s.address("server", httpPort)
	s.apply(`---
apiVersion: batch/v1
kind: Job
metadata: {name: friends}
spec:
  completions: 12
  parallelism: 4
  template:
    metadata: {labels: {app: friend, once: "true"}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: ` + agnhostImage + `, args: [connect, --timeout=5s, "` + target + `"]}]
`)
	s.must(s.kube("", "-n", s.name, "wait", "--for=condition=Complete", "job/friends", "--timeout", patience.String()))
	addresses := s.must(s.kube("", "-n", s.name, "get", "pods", "-l", "app=friend", "-o", "jsonpath={.items[*].status.podIP}"))
	if got := s.phases(); got["Succeeded"] != 12 {
		t.Errorf("pods of the job: %v", got)
	}
	// Host-local hands addresses out one after the other: strangers come to those of the job again.
	const many = 30
	var text strings.Builder
	for i := range many {
		text.WriteString(strings.ReplaceAll(client(fmt.Sprint("stranger-", i), "stranger", target, 1+i%s.Nodes), `once: "true"`, `once: "again"`))
	}
	s.apply(text.String())
	if err := await("the strangers", func() error {
		if out := s.must(s.kube("", "-n", s.name, "get", "pods", "-l", "once=again", "-o", "jsonpath={.items[*].status.phase}")); strings.Count(out, "Failed") != many {
			if strings.Contains(out, "Succeeded") {
				t.Fatalf("a stranger reached the server: %s; addresses of the job were %s", out, addresses)
			}
			return errors.New(out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for n := range s.Nodes {
		if out, err := s.run(nodeName(n+1), "", s.Bin+"/sluicectl", "get", "status"); err != nil || strings.Contains(out, "no interface") {
			t.Errorf("%s: %s %v", nodeName(n+1), out, err)
		}
	}
}

// TestClusterChurns makes and deletes pods as fast as the kubelets can, with policies that select
// them, while pods come and go on a node that has no kubelet: 50 a second, or as many as the API
// server takes.
func TestClusterChurns(t *testing.T) {
	w := newWatched(t, "churn")
	w.begin()
	g := newGhosts(w.space, 50)
	const rounds, each = 3, 20
	begin := time.Now()
	for range rounds {
		var text strings.Builder
		for i := range each {
			text.WriteString(client(fmt.Sprint("c-", i), "stranger", w.address("server", httpPort), 1+i%w.Nodes))
		}
		w.apply(text.String())
		if got := w.phases(); got["Failed"] != each {
			t.Errorf("pods that may not connect: %v", got)
		}
		w.must(w.kube("", "-n", w.name, "delete", "pods", "-l", "once=true", "--wait=true"))
	}
	t.Logf("%d pods were made and deleted by kubelets in %s", rounds*each, time.Since(begin).Round(time.Second))
	g.log("beside the kubelets")
	g.await(500)
	g.log("alone")
	g.check()
	w.end()
	if w.onVPP() {
		return
	}
	for n := range w.Nodes {
		out := w.must(w.run(nodeName(n+1), "", "find", "/sys/fs/bpf/sluice", "-type", "f"))
		t.Logf("%s: %d pins", nodeName(n+1), strings.Count(out, "\n"))
	}
}
