package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asked is what sluicectl answered.
type asked struct {
	code        int
	out, errOut string
}

func (a asked) String() string {
	return fmt.Sprintf("exit code %d\n%s\n%s", a.code, a.out, a.errOut)
}

// sluicectl runs sluicectl on the machine of the control plane, which has no agent, with a kubeconfig.
func (s space) sluicectl(kubeconfig, line string) (a asked) {
	s.t.Helper()
	args := append([]string{filepath.Join(s.Bin, "sluicectl")}, strings.Fields(line)...)
	inside, err := s.inside(control, append(args, "--kubeconfig", kubeconfig)...)
	if err != nil {
		s.t.Fatal(err)
	}
	var out, errOut strings.Builder
	c := exec.Command(inside[0], inside[1:]...)
	c.Stdout, c.Stderr = &out, &errOut
	err = c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return asked{c.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// kubeconfigOf writes the kubeconfig of a new service account, which has no rights yet.
func (s space) kubeconfigOf(account string) string {
	s.t.Helper()
	s.must(s.kube("", "-n", s.name, "create", "serviceaccount", account))
	token := s.must(s.kube("", "-n", s.name, "create", "token", account, "--duration", "1h"))
	path := filepath.Join(s.t.TempDir(), account+".conf")
	s.must(s.run(control, "", "cp", s.path("admin.conf"), path))
	kubectl := filepath.Join(s.Kube, "kubectl")
	s.must(s.run(control, "", kubectl, "--kubeconfig", path, "config", "set-credentials", account, "--token", token))
	s.must(s.run(control, "", kubectl, "--kubeconfig", path, "config", "set-context", "--current", "--user", account))
	return path
}

// TestClusterIsAskedByKubeconfig asks every question from outside of the nodes: with the documented role
// and without it, while an agent starts anew, and while a node is down.
func TestClusterIsAskedByKubeconfig(t *testing.T) {
	s := newSpace(t, "reach")
	s.apply(shop + server("server", "server", 1) + server("friend", "friend", 2) + server("stranger", "stranger", 2))
	s.ready()
	sre := s.kubeconfigOf("sre")

	if a := s.sluicectl(sre, "get policies"); a.code != 2 || a.out != "" || strings.Count(a.errOut, "\n") != 1 || !strings.Contains(a.errOut, "is forbidden") || !strings.Contains(a.errOut, "ClusterRole sluicectl") {
		t.Errorf("without the role: %s", a)
	}
	s.must(s.kube("", "-n", "kube-system", "create", "rolebinding", "sluicectl", "--clusterrole", "sluicectl", "--serviceaccount", s.name+":sre"))
	t.Cleanup(func() { s.must(s.kube("", "-n", "kube-system", "delete", "rolebinding", "sluicectl")) })

	renderer := "xdp"
	if s.onVPP() {
		renderer = "vpp-plugin"
	}
	has := func(parts ...string) func(asked) error {
		return func(a asked) error {
			for _, part := range parts {
				if !strings.Contains(a.out+a.errOut, part) {
					return fmt.Errorf("it lacks %q", part)
				}
			}
			return nil
		}
	}
	for _, tc := range []struct {
		line string
		code int
		want func(asked) error
	}{
		{"get status", 0, has("NODE", nodeName(1), nodeName(2), renderer)},
		{"get policies -n reach --no-headers", 0, has(nodeName(1)+"  reach/server", nodeName(2)+"  reach/server")},
		{"get policies -n reach --node node-2 -o jsonpath={range[*]}{.node}{end}", 0, has(nodeName(2))},
		{"get pods -n reach -o jsonpath={range[*]}{.pod}={.state},{end}", 0, has("reach/friend=enforced", "reach/server=enforced", "reach/stranger=enforced")},
		{"get endpoints -n reach", 0, has(nodeName(1), nodeName(2), "reach/server", "reach/friend")},
		{"get rules reach/server", 0, has(nodeName(1))},
		{"get limits", 0, has(nodeName(1), nodeName(2))},
		{"get namespaces", 0, has("reach")},
		{"get nodes --policy reach/server", 0, has(nodeName(1), nodeName(2))},
		{"describe pod reach/friend", 0, has("Node:       "+nodeName(2), "State:      enforced", "reach/friend")},
		{"describe policy reach/server", 0, has("Nodes:", nodeName(1))},
		{"explain reach/friend reach/server:8080 -v", 0, has("ALLOWED", "renderer "+renderer+" on "+nodeName(1)+", ingress", "renderer "+renderer+" on "+nodeName(2)+", egress")},
		{"explain reach/stranger reach/server:8080", 1, has("DENIED")},
		{"graph -n reach", 0, has("reach/friend")},
		{"top policies", 0, has("POLICY")},
		{"watch verdicts --follow=false --since 1m -o json", 0, has()},
		{"check", 0, has(nodeName(1)+"  renderer "+renderer, nodeName(2)+"  renderer "+renderer)},
		{"bundle --node node-1 -", 0, has()},
		{"bundle -", 2, has("name it with --node")},
		{"inject reach/friend reach/server:8080", 2, has("sluicectl: agent: ")},
		{"apply -f /dev/null", 2, has()},
		{"get policies --node node-9", 2, has("no agent runs on that node; agents run on " + nodeName(1))},
		{"get policies --context nobody", 2, has("kubeconfig has no such context")},
		{"get policies --agent-namespace default", 2, has("forbidden")},
	} {
		if a := s.sluicectl(sre, tc.line); a.code != tc.code {
			t.Errorf("%s: want exit code %d: %s", tc.line, tc.code, a)
		} else if err := tc.want(a); err != nil {
			t.Errorf("%s: %v: %s", tc.line, err, a)
		}
	}

	// While agents start anew, an answer is whole, or names the node that it is without.
	s.must(s.kube("", "-n", "kube-system", "rollout", "restart", s.agents()))
	missed := 0
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		a := s.sluicectl(sre, "get policies -n reach --no-headers")
		rows := strings.Count(a.out, "reach/server")
		switch {
		case a.code == 0 && rows == 2:
		case a.code == 2 && rows < 2 && strings.Contains(a.errOut, "node-"):
			missed++
		default:
			t.Fatalf("while agents start anew: %s", a)
		}
	}
	t.Logf("%d answers were without a node while agents started anew", missed)
	s.must(s.kube("", "-n", "kube-system", "rollout", "status", s.agents(), "--timeout", patience.String()))
	s.enforces(sre)

	// A node that is down is named, and the other one answers.
	s.must(s.run(nodeName(2), "", "pkill", "-STOP", "-x", "kubelet"))
	a := s.sluicectl(sre, "get policies -n reach --no-headers")
	s.must(s.run(nodeName(2), "", "pkill", "-CONT", "-x", "kubelet"))
	if a.code != 2 || strings.Count(a.out, "reach/server") != 1 || !strings.Contains(a.errOut, "1 node did not answer: "+nodeName(2)) {
		t.Errorf("while a kubelet stands still: %s", a)
	}
	s.enforces(sre)
}

// enforces waits until all nodes answer again.
func (s space) enforces(kubeconfig string) {
	s.t.Helper()
	if err := await("answers of all nodes", func() error {
		if a := s.sluicectl(kubeconfig, "get policies -n reach --no-headers"); a.code != 0 || strings.Count(a.out, "reach/server") != 2 {
			return errors.New(a.String())
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
}
