package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/sluice-net/sluice/tests/lab/programs"
)

// TestCNIIsInstalledAndRemovedByAgent: from a single plugin to pods that are registered, and
// back.
func TestCNIIsInstalledAndRemovedByAgent(t *testing.T) {
	n := newCNINode(t, "ptp", "")
	dir := t.TempDir()
	bin, conf := filepath.Join(dir, "bin"), filepath.Join(dir, "net.d")
	n.Must(errors.Join(os.Mkdir(bin, 0o755), os.Mkdir(conf, 0o755)))
	single := filepath.Join(conf, "10-pods.conf")
	text := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "type": "ptp", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.88.0.0/24"}}`, n.state)
	n.Must(os.WriteFile(single, []byte(text), 0o600))
	n.more = append(n.more, "--cni-bin-dir", bin, "--cni-conf-dir", conf, "--cni-options", `{"timeout": "1m", "onTimeout": "fail"}`)
	n.up()
	eventually(t, func() error {
		_, err := os.Stat(single)
		if err == nil {
			return errors.New("the single plugin is there")
		}
		n.list, err = libcni.LoadConfList(conf, "pods")
		return err
	})
	n.cni.Path = []string{pluginsFolder, bin}
	web := n.sandbox("web")
	n.Must(n.add(web))
	eventually(t, func() error { return n.isEnforced("web") })

	cleanup := func() (string, error) {
		out, err := exec.Command(programs.Path("sluice-agent"), "cleanup", "--cni-bin-dir", bin, "--cni-conf-dir", conf, "--cni-results", n.results).CombinedOutput()
		return string(out), err
	}
	if out, err := cleanup(); err == nil || !strings.Contains(out, "another process installs") {
		t.Errorf("while the agent runs: %v: %s", err, out)
	}
	n.agent.Signal(syscall.SIGTERM)
	<-n.agent.Ended
	if out, err := cleanup(); err != nil || !strings.Contains(out, "1 pods were made with it") {
		t.Errorf("with a pod: %v: %s", err, out)
	}
	if b, err := os.ReadFile(single); string(b) != text {
		t.Errorf("%v: %s", err, b)
	}
	n.Must(n.del(web))
	if out, err := cleanup(); err != nil || !strings.Contains(out, "removed "+filepath.Join(bin, "sluice-cni")) {
		t.Errorf("without pods: %v: %s", err, out)
	}
}
