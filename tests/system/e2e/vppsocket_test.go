package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// withoutOverride starts a program for which the modes of files hold, even if it belongs to root.
func withoutOverride(c *exec.Cmd) error {
	if os.Geteuid() == 0 {
		c.Args = append([]string{setpriv, "--bounding-set", "-dac_override,-dac_read_search", c.Path}, c.Args[1:]...)
		c.Path = setpriv
	}
	return c.Start()
}

// setpriv is a program of util-linux.
const setpriv = "/usr/bin/setpriv"

// TestVPPSocketThatAgentMayNotOpen takes the permission for VPP's socket, and for the folder that it
// is in, from an agent. It says so in words and is not ready, what it enforced stays in force, and it
// goes on when it has the permission again.
func TestVPPSocketThatAgentMayNotOpen(t *testing.T) {
	if _, err := os.Stat(setpriv); err != nil && os.Geteuid() == 0 {
		t.Skipf("modes of files do not hold for root: %v", err)
	}
	kinds := map[string]func(t *testing.T) (*vpptest.Process, []string){
		"acl": func(t *testing.T) (*vpptest.Process, []string) { return vpptest.Launch(t), nil },
		"vpp-plugin": func(t *testing.T) (*vpptest.Process, []string) {
			name, config := vpptest.Plugin(t)
			memory := filepath.Join(t.TempDir(), "memory")
			return vpptest.LaunchWith(t, config+"sluice { directory "+memory+" }\n", name), []string{"--renderers", "vpp-plugin", "--vpp-plugin-memory", memory}
		},
	}
	for kind, launch := range kinds {
		t.Run(kind, func(t *testing.T) {
			started, options := launch(t)
			v, etcd := &realVPP{port: 20000}, startEtcd(t)
			v.attach(started)
			store(t, etcd, demo)
			api := filepath.Join(socketDir(t), "agent.sock")
			run := func() *process {
				args := append([]string{"run", "--node", "node-1", "--etcd-endpoints", etcd, "--vpp-socket", v.Socket(), "--state-file=", "--api-socket", api}, options...)
				p := startProgramBy(t, withoutOverride, "sluice-agent", args...)
				p.socket = api
				return p
			}
			chmod := func(path string, mode os.FileMode) {
				t.Helper()
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			a := run()
			a.ready()
			v.wantDemo(t, "with the permission")
			chmod(v.Socket(), 0)
			v.wantDemo(t, "the agent is still connected")
			a.Signal(syscall.SIGKILL)
			<-a.Ended
			a = run()
			a.notReady("may not open it")
			v.wantDemo(t, "the next agent may not open the socket")
			chmod(v.Socket(), 0o700)
			a.ready()
			v.wantDemo(t, "it may again")

			folder := filepath.Dir(v.Socket())
			t.Cleanup(func() { _ = os.Chmod(folder, 0o700) }) // for who removes it
			v.Kill()
			chmod(folder, 0)
			v.Start()
			v.attach(v.Process)
			a.notReady("may not enter a directory above it")
			chmod(folder, 0o700)
			a.ready()
			v.wantDemo(t, "it may enter the folder again")
		})
	}
}
