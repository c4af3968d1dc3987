package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// embeddedKSR starts a sluice-ksr with its own etcd in a directory.
func embeddedKSR(t testing.TB, c *cluster, dir, address string) *ksr {
	t.Helper()
	return startKSR(t, c.kubeconfig(c.address), "ksr-0", nil, "--embedded-etcd", "--etcd-dir", dir, "--etcd-listen", "http://"+address)
}

func TestReflectorServesEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.grant()
	c.apply(demo)
	dir, address := t.TempDir(), programs.FreeAddress(t)
	k := embeddedKSR(t, c, dir, address)
	k.says(200, "ok: leads")
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	a := runAgent(t, address, v.socket)
	a.ready()
	eventually(t, v.demoEnforced)

	// Over a restart the state is there, and nothing is written again.
	k.stop(syscall.SIGTERM)
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}
	k = embeddedKSR(t, c, dir, address)
	k.says(200, "ok: leads")
	if n := k.metric(`sluice_ksr_writes_total{op="put"}`); n != "0" {
		t.Errorf("a restart made %s writes", n)
	}
	state := reader(t, []string{address})
	if err := state.Write(t.Context(), nil, []string{model.LeaderKey(model.DefaultPrefix, "ksr")}); err == nil || !strings.Contains(err.Error(), "may write below") {
		t.Errorf("a client of the network may delete the key of the leader: %v", err)
	}
	c.remove("NetworkPolicy", "demo", "server")
	eventually(t, func() error {
		if !v.permits(stranger, server, 80) {
			return errors.New("the change is not enforced")
		}
		return nil
	})
}

// TestFaultDiskOfEmbeddedEtcdIsFull gives it a small file system, which another process
// fills. etcd cannot continue without its log: the process ends, and its supervisor starts it
// again. Policy stays in force meanwhile.
func TestFaultDiskOfEmbeddedEtcdIsFull(t *testing.T) {
	faulty(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=200m"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }) // its user may still end
	s := &site{t: t, cluster: startCluster(t)}
	s.cluster.grant()
	s.cluster.apply(demo)
	address := programs.FreeAddress(t)
	data := filepath.Join(dir, "etcd")
	k := embeddedKSR(t, s.cluster, data, address)
	k.says(200, "ok: leads")
	s.node(address)
	s.state = reader(t, []string{address})

	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 1<<16))
	}
	_ = f.Close() // it is full, which is what is wanted
	t.Logf("filled: %v", err)
	s.grow("full", 300)
	select {
	case <-k.Ended:
		t.Logf("sluice-ksr ended with %s", k.Cmd.ProcessState)
	default:
		_, body, err := k.get("/readyz")
		t.Logf("sluice-ksr says %q, %v; pending %s", body, err, k.metric("sluice_ksr_pending"))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if k.Cmd.ProcessState != nil {
		k = embeddedKSR(t, s.cluster, data, address)
	}
	t.Logf("once there was room: converged after %v", s.converged())
	k.says(200, "ok: leads")
	s.probes.check(t)
}
