package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/deployed"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// manifest reads a file of deploy/.
func manifest(t testing.TB, name string) (deployed.File, corev1.Container) {
	t.Helper()
	f, err := deployed.Read(filepath.Join("..", "..", ".."), name)
	if err != nil {
		t.Fatal(err)
	}
	return f, f.Workload.Pod.Spec.Containers[0]
}

// asDeployed returns the arguments of a container, with its settings at another path.
func asDeployed(t testing.TB, f deployed.File, c corev1.Container) []string {
	t.Helper()
	args := slices.Clone(c.Args)
	for i, arg := range args {
		if !strings.HasSuffix(arg, ".yaml") {
			continue
		}
		path := filepath.Join(t.TempDir(), filepath.Base(arg))
		if err := os.WriteFile(path, []byte(f.Configs[f.Workload.Meta.Name].Data[filepath.Base(arg)]), 0o600); err != nil {
			t.Fatal(err)
		}
		args[i] = path
	}
	return args
}

// TestManifestsProbesAreServed starts them with the arguments and settings of
// the manifests, but for what this machine has elsewhere.
func TestManifestsProbesAreServed(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sockets := socketDir(t)
	agent := []string{"--node", "node-1", "--renderers", "acl", "--vpp-socket", filepath.Join(sockets, "vpp.sock"), "--api-socket"}
	for name, here := range map[string][]string{
		"ksr.yaml":       {"--kubeconfig", kubeconfig},
		"neutron.yaml":   {"--api-socket", filepath.Join(sockets, "neutron.sock")},
		"agent-vpp.yaml": append(slices.Clone(agent), filepath.Join(sockets, "vpp-agent.sock")),
		"agent-xdp.yaml": append(slices.Clone(agent), filepath.Join(sockets, "xdp-agent.sock")), // the kernel is for root
	} {
		f, c := manifest(t, name)
		args := append(asDeployed(t, f, c), "--etcd-endpoints", "127.0.0.1:1", "--etcd-ca=", "--etcd-cert=", "--etcd-key=", "--metrics-address", "[127.0.0.1]:0", "--log-format", "text")
		program, _, _ := strings.Cut(c.Image, ":")
		p := startProgram(t, program, append(args, here...)...)
		at := p.Line(`metrics and health are served" address=(\S+)`)[1]
		for path, want := range map[string]int{c.LivenessProbe.HTTPGet.Path: http.StatusOK, c.ReadinessProbe.HTTPGet.Path: http.StatusServiceUnavailable} {
			resp, err := http.Get("http://" + at + path)
			if err != nil {
				t.Fatal(err)
			}
			if _ = resp.Body.Close(); resp.StatusCode != want {
				t.Errorf("%s: %s is %s, want %d", name, path, resp.Status, want)
			}
		}
	}
}

// TestManifestOfVPPInstallsPlugin runs its second container: root without any capability.
func TestManifestOfVPPInstallsPlugin(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root")
	}
	f, _ := manifest(t, "agent-vpp.yaml")
	c := f.Workload.Pod.Spec.Containers[1]
	bin, conf := t.TempDir(), t.TempDir()
	path := filepath.Join(conf, "10-pods.conflist")
	if err := os.WriteFile(path, []byte(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "contiv-cni"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program("sluice-agent"), append(slices.Clone(c.Args), "--cni-bin-dir", bin, "--cni-conf-dir", conf)...)
	var out bytes.Buffer
	cmd.Stderr = &out
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread has no rights any more
		started <- only(cmd, c.SecurityContext.Capabilities.Add)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // most often it has ended
	eventually(t, func() error {
		b, err := os.ReadFile(path)
		if err == nil && (!strings.Contains(string(b), `"dataplane": "vpp"`) || !strings.Contains(string(b), "sluice-cni")) {
			err = fmt.Errorf("the list is %s", b)
		}
		_, errBin := os.Stat(filepath.Join(bin, "sluice-cni"))
		return errors.Join(err, errBin)
	})
	if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
}

// capabilities are the numbers of those that manifests name.
var capabilities = map[corev1.Capability]uintptr{"BPF": unix.CAP_BPF, "NET_ADMIN": unix.CAP_NET_ADMIN, "PERFMON": unix.CAP_PERFMON, "SYS_ADMIN": unix.CAP_SYS_ADMIN}

// only starts a program that has no rights but these, as in a container. It is to be called by
// a thread that ends with it.
func only(c *exec.Cmd, caps []corev1.Capability) error {
	keep := map[uintptr]bool{}
	for _, name := range caps {
		number, known := capabilities[name]
		if !known {
			return fmt.Errorf("the test does not know the capability %s", name)
		}
		keep[number] = true
	}
	for number := range uintptr(unix.CAP_LAST_CAP + 1) {
		if keep[number] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) { // a newer one
			return err
		}
	}
	return c.Start()
}

// TestManifestRightsSufficeForKernel runs agents that have only the capabilities of
// deploy/agent-xdp/agent-xdp.yaml, with SLUICE_LONG in every mode, and agents that lack one of
// them.
func TestManifestRightsSufficeForKernel(t *testing.T) {
	_, c := manifest(t, "agent-xdp.yaml")
	caps := c.SecurityContext.Capabilities.Add
	modes := []string{"auto"}
	if renderertest.Whole() {
		modes = append(modes, "clsact", "xdp", "generic")
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			n := startKernelNodeWith(t, mode, slices.Clone(caps))
			n.TryDemo()
			n.kill()
			n.run()
			n.TryDemo()
			watch := startProgram(t, "sluicectl", "watch", "verdicts", "-n", "demo", "--count", "1", "--protocol", "tcp", "--socket", n.agent.socket)
			eventually(t, func() error {
				n.Can(false, "the stranger", "stranger", "server", "tcp", 4, 80)
				if watch.Output() == "" {
					return errors.New("nothing is reported")
				}
				return nil
			})
			n.cleanUp()
		})
	}
	for _, missing := range caps {
		t.Run("without "+string(missing), func(t *testing.T) {
			n := newKernelNode(t, "auto")
			n.rights = slices.DeleteFunc(slices.Clone(caps), func(c corev1.Capability) bool { return c == missing })
			n.start()
			eventually(t, func() error {
				if out := n.agent.Output(); !strings.Contains(out, "renderer xdp needs CAP_"+string(missing)+", which this process does not have") {
					return fmt.Errorf("the agent does not name the right that it lacks: %s", out)
				}
				return nil
			})
		})
	}
}

// TestUnitsGrantRightsOfManifests, so that what is tested of manifests holds for packages.
func TestUnitsGrantRightsOfManifests(t *testing.T) {
	for unit, of := range map[string]string{"sluice-agent.service": "agent-xdp.yaml", "sluice-ksr.service": "ksr.yaml", "sluice-neutron.service": "neutron.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		_, line, there := strings.Cut(string(text), "\nCapabilityBoundingSet=")
		line, _, _ = strings.Cut(line, "\n")
		var want []string
		_, c := manifest(t, of)
		for _, name := range c.SecurityContext.Capabilities.Add {
			want = append(want, "CAP_"+string(name))
		}
		got := strings.Fields(line)
		slices.Sort(got)
		slices.Sort(want)
		if !there || !slices.Equal(got, want) || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s grants %v, and %s drops %v and adds %v", unit, got, of, c.SecurityContext.Capabilities.Drop, want)
		}
	}
}

// TestReflectorNeedsNoRights runs it without any capability, with an etcd of its own: it leads
// and writes.
func TestReflectorNeedsNoRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root")
	}
	t.Parallel()
	c := startCluster(t)
	c.grant()
	c.apply(demo)
	_, container := manifest(t, "ksr.yaml")
	p := startProgramBy(t, func(cmd *exec.Cmd) error {
		started := make(chan error)
		go func() {
			runtime.LockOSThread() // for good: the thread has no rights any more
			started <- only(cmd, container.SecurityContext.Capabilities.Add)
		}()
		return <-started
	}, "sluice-ksr", "--kubeconfig", c.kubeconfig(c.address), "--identity", "ksr-0", "--embedded-etcd", "--etcd-dir", t.TempDir(), "--metrics-address", "127.0.0.1:0")
	k := &ksr{process: p}
	k.metrics = k.Line(`metrics and health are served" address=(\S+)`)[1]
	k.says(200, "ok: leads")
}

// startKernelNodeWith is startKernelNode for an agent with few rights.
func startKernelNodeWith(t *testing.T, mode string, rights []corev1.Capability) *kernelNode {
	t.Helper()
	n := newKernelNode(t, mode)
	n.rights = rights
	n.run()
	return n
}

// starter returns how the agent of the node is started.
func (n *kernelNode) starter() func(*exec.Cmd) error {
	return func(c *exec.Cmd) error {
		return wires.Inside(n.Node, func() error {
			if n.rights == nil {
				return c.Start()
			}
			return only(c, n.rights)
		})
	}
}
