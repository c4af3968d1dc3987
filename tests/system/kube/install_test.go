package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/sluice-net/sluice/tests/lab/wires"
	"github.com/sluice-net/sluice/tests/system/guides"
)

// bareSpace is a cluster without Sluice, in which tests install it as a user does.
type bareSpace struct {
	space
	source string // a copy of deploy/ and docs/, as a user edits them
	path   string // folder with kubectl and helm for this cluster, and sluicectl
}

// profile is the change for containerd before 1.7, see edits.
var profile = strings.NewReplacer("type: RuntimeDefault", "type: Unconfined")

// newBare returns the cluster of "make test-install", and sees that the test leaves it as it was.
func newBare(t *testing.T) bareSpace {
	t.Helper()
	l := running(t)
	if !l.Bare {
		t.Skip("the cluster has Sluice already: make test-install starts one without")
	}
	b := bareSpace{space{l, t, "kube-system"}, t.TempDir(), t.TempDir()}
	b.must("", copyEdited(l.Source, b.source, profile, "deploy", "docs/start"))
	before := b.left()
	t.Cleanup(func() {
		if after := b.left(); !slices.Equal(before, after) {
			t.Errorf("the nodes are not as before:\n%s", differ(before, after))
		}
	})
	t.Cleanup(b.removeAfterFailure)
	b.wrap("kubectl", filepath.Join(l.Kube, "kubectl"))
	b.wrap("helm", os.Getenv("SLUICE_HELM"))
	b.must("", os.Symlink(filepath.Join(l.Bin, "sluicectl"), filepath.Join(b.path, "sluicectl")))
	return b
}

// removeAfterFailure removes what a test that failed left half-way.
func (b bareSpace) removeAfterFailure() {
	if !b.t.Failed() {
		return
	}
	for _, c := range []string{"helm uninstall sluice -n kube-system --wait", "kubectl delete --ignore-not-found -k deploy/kustomize/quickstart", "kubectl delete --ignore-not-found -f docs/start/demo.yaml", "kubectl -n kube-system delete --ignore-not-found secret sluice-ksr-etcd sluice-agent-etcd"} {
		_ = b.command("", c).Run() // it may never have come that far
	}
	for n := range b.Nodes {
		_ = b.command(nodeName(n+1), "sluice-agent cleanup --all").Run() // as well
	}
}

// wrap makes a program that talks with the API server from where that is.
func (b bareSpace) wrap(name, program string) {
	b.t.Helper()
	if _, err := os.Stat(program); err != nil {
		b.t.Fatalf("make test-install names helm in SLUICE_HELM: %v", err)
	}
	line, err := b.inside(control, "env", "--chdir="+b.source, "KUBECONFIG="+b.lab.path("admin.conf"), "HELM_CACHE_HOME="+b.path, "HELM_CONFIG_HOME="+b.path, program)
	b.must("", err)
	b.must("", os.WriteFile(filepath.Join(b.path, name), []byte("#!/bin/sh\nexec "+strings.Join(line, " ")+` "$@"`+"\n"), 0o755))
}

// shell runs commands as a user at the top of the repository, or as root of a node.
func (b bareSpace) shell(machine, commands string) string {
	b.t.Helper()
	out, err := b.command(machine, commands).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s $ %s: %v\n%s", machine, commands, err, out)
	}
	b.t.Logf("%s $ %s\n%s", machine, commands, out)
	return string(out)
}

// command returns what shell runs.
func (b bareSpace) command(machine, commands string) *exec.Cmd {
	b.t.Helper()
	line := []string{"bash", "-euo", "pipefail", "-c", commands}
	if machine != "" {
		var err error
		line, err = b.inside(machine, append([]string{"env", "PATH=" + b.Bin + ":/usr/sbin:/usr/bin:/sbin:/bin"}, line...)...)
		b.must("", err)
	}
	c := exec.Command(line[0], line[1:]...)
	c.Dir, c.Env = b.source, append(os.Environ(), "PATH="+b.path+":"+os.Getenv("PATH"))
	return c
}

// left returns everything of the nodes that Sluice touches: files with their sizes, and programs at
// interfaces.
func (b bareSpace) left() (out []string) {
	b.t.Helper()
	for n := range b.Nodes {
		name := nodeName(n + 1)
		files := b.must(b.run(name, "", "sh", "-c", "find /etc/cni /opt/cni /sys/fs/bpf /var/lib/sluice /run/sluice -printf '"+name+` %p %y %s\n' 2>/dev/null || true`))
		out = append(out, strings.Split(files, "\n")...)
		out = append(out, b.programs(name)...)
	}
	slices.Sort(out)
	return out
}

// programs returns which programs a node has at interfaces, by TCX.
func (b bareSpace) programs(node string) (out []string) {
	b.t.Helper()
	b.must("", wires.Inside(b.network(node), func() error {
		interfaces, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range interfaces {
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				found, err := link.QueryPrograms(link.QueryOptions{Target: i.Index, Attach: at})
				if err != nil {
					return fmt.Errorf("%s of %s: %w", at, i.Name, err)
				}
				if len(found.Programs) > 0 {
					out = append(out, fmt.Sprintf("%s %s has a program at %s", node, i.Name, at))
				}
			}
		}
		return nil
	}))
	return out
}

// differ shows what only one of two lists has.
func differ(before, after []string) string {
	var out strings.Builder
	show := func(sign string, have, other []string) {
		for _, line := range have {
			if !slices.Contains(other, line) {
				fmt.Fprintln(&out, sign, line)
			}
		}
	}
	show("gone:", before, after)
	show("new: ", after, before)
	return out.String()
}

// TestInstallPageIsTrue runs the commands of docs/start/kubernetes.md that are marked so, in their
// order: those of a node on every node.
func TestInstallPageIsTrue(t *testing.T) {
	b := newBare(t)
	page, err := os.ReadFile(filepath.Join(b.Source, "docs/start/kubernetes.md"))
	b.must("", err)
	var said []string
	for _, block := range guides.Blocks(string(page)) {
		switch block.Mark {
		case "sh":
			said = append(said, b.shell("", block.Text))
		case "sh node":
			for n := range b.Nodes {
				said = append(said, b.shell(nodeName(n+1), block.Text))
			}
		}
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{"daemon set \"sluice-agent-xdp\" successfully rolled out", "TIMEOUT", "DENIED  sluice-start/stranger", "ALLOWED  sluice-start/friend", "removed "} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing that the commands of the page print has %q", want)
		}
	}
}

// TestInstallGuardsSluice has deploy/guard keep pods from the ports of Sluice on all nodes, those
// of their own node as well, and from nothing else.
func TestInstallGuardsSluice(t *testing.T) {
	b := newBare(t)
	crds, err := b.command("", "cat $(go list -C "+b.Source+"/tests/lab/tools/netpolapi -m -f '{{.Dir}}' sigs.k8s.io/network-policy-api)/config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml").Output()
	b.must("", err)
	b.must(b.kube(string(crds), "apply", "-f", "-"))
	t.Cleanup(func() { b.must(b.kube(string(crds), "delete", "-f", "-")) })
	b.helm("install", b.source, "dev")
	defer func() {
		b.shell("", "helm uninstall sluice --namespace kube-system --wait && kubectl -n kube-system wait --for=delete pod -l app.kubernetes.io/part-of=sluice --timeout "+patience.String())
		b.must(b.kube("", "delete", "pod", "-n", "guarded", "--all"))
		for n := range b.Nodes {
			b.shell(nodeName(n+1), "sluice-agent cleanup --all")
			b.cleaned(n + 1)
		}
	}()
	s := newSpace(t, "guarded")
	s.apply(server("pod", "anybody", 1))
	s.ready()
	reflector := b.must(b.kube("", "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=sluice-ksr", "-o", "jsonpath={.items[0].status.hostIP}"))
	guarded := []string{net.JoinHostPort(reflector, "9416"), net.JoinHostPort(reflector, "23790")}
	for n := range b.Nodes {
		guarded = append(guarded, net.JoinHostPort(s.main().nodeIP(n+1), "9417"))
	}
	reaches := func(want bool, addresses ...string) {
		t.Helper()
		for _, to := range addresses {
			if err := await(to, func() error {
				if s.connects("pod", to) != want {
					return fmt.Errorf("a pod reaches it: %t, want %t", !want, want)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}
	reaches(true, guarded...)
	b.shell("", "kubectl apply -k deploy/guard")
	reaches(false, guarded...)
	reaches(true, net.JoinHostPort(s.main().nodeIP(1), "10250"), net.JoinHostPort(s.main().nodeIP(2), "10250"))
	b.must(b.kube("", "label", "namespace", "guarded", "scrapes-sluice=true"))
	reaches(true, guarded...)
}

// older is a version to upgrade from: its checkout, with binaries in bin/.
func (b bareSpace) older() string {
	b.t.Helper()
	dir := os.Getenv("SLUICE_OLD")
	if dir == "" {
		b.t.Skip("SLUICE_OLD names no checkout of an older version: make test-install FROM=<commit>")
	}
	for n := range b.Nodes {
		for _, i := range (&lab{b.site, settings{Bin: filepath.Join(dir, "bin"), Kube: b.Kube, SCTP: b.SCTP, CoreDNS: b.CoreDNS}}).images() {
			if name, ours := strings.CutSuffix(i.names[0], ":dev"); ours && strings.Contains(name, "/sluice-") {
				i.names = []string{name + ":old"}
				b.must("", b.loadImages(nodeName(n+1), i))
			}
		}
	}
	source := b.t.TempDir()
	b.must("", copyEdited(dir, source, profile, "deploy"))
	return source
}

// cleaned waits until sluice-cni is gone, with the last pod that was made with it.
func (b bareSpace) cleaned(n int) {
	b.t.Helper()
	b.must("", await("the last pod of sluice-cni", func() error {
		out, err := b.command(nodeName(n), "sluice-agent cleanup").CombinedOutput()
		if err == nil && bytes.Contains(out, []byte("left ")) {
			err = fmt.Errorf("%s", out)
		}
		return err
	}))
}

// helm installs or upgrades the chart of a folder, and waits until it is rolled out.
func (b bareSpace) helm(verb, folder, tag string) {
	b.t.Helper()
	b.shell("", fmt.Sprintf("helm %s sluice %s/deploy/helm/sluice --namespace kube-system --set etcd.embedded=true,image.tag=%s", verb, folder, tag))
	for _, what := range []string{"deployment/sluice-ksr", "daemonset/sluice-agent-xdp"} {
		b.shell("", "kubectl -n kube-system rollout status "+what+" --timeout "+patience.String())
	}
}

// TestInstallUpgradesAndRemoves has an older version enforce, upgrades its chart under traffic, and
// removes it: no permitted request is lost and no denied one answered, at any time before the
// clean-up. Behind it all are answered, and nothing is left.
func TestInstallUpgradesAndRemoves(t *testing.T) {
	b := newBare(t)
	old := b.older()
	b.helm("install", old, "old")
	w := newWatched(t, "upgrade")
	w.begin()
	b.helm("upgrade", b.source, "dev")
	if images := b.get("pods", ".items[*].spec.containers[*].image"); strings.Contains(images, ":old") {
		t.Errorf("after the upgrade there are %s", images)
	}
	// Pods that come now are isolated from birth, and a change gets through.
	target := w.address("server", httpPort)
	w.apply(client("late-1", "stranger", target, 1) + client("late-2", "friend", target, 2))
	if got := w.phases(); got["Failed"] != 1 || got["Succeeded"] != 1 {
		t.Errorf("of two pods that came later one may connect: %v", got)
	}
	b.shell("", "helm uninstall sluice --namespace kube-system --wait && kubectl -n kube-system wait --for=delete pod -l app.kubernetes.io/part-of=sluice --timeout "+patience.String())
	w.end()
	for n := range b.Nodes {
		b.shell(nodeName(n+1), "sluice-agent cleanup --all")
	}
	for _, at := range []string{w.address("server", httpPort), w.address("other", httpPort)} {
		if _, err := ask(w.network("stranger"), "tcp", at, permittedWait); err != nil {
			t.Errorf("after the clean-up a stranger does not reach %s: %v", at, err)
		}
	}
	// Pods that sluice-cni was there for are deleted with it; it goes after them.
	w.must(w.kube("", "-n", w.name, "delete", "pods", "--all", "--timeout", patience.String()))
	for n := range b.Nodes {
		b.cleaned(n + 1)
	}
	if left := b.shell("", "kubectl get all,secrets,configmaps,serviceaccounts,poddisruptionbudgets,clusterroles,clusterrolebindings -A -o name | grep -i sluice || true"); strings.TrimSpace(left) != "" {
		t.Errorf("in the cluster there still are %s", left)
	}
}
