package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/renderertest"
)

// rss returns how much memory a process has, in bytes.
func rss(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestAgentIdleConnectionsCostLittle opens thousands of connections, over TCP and at the local
// socket, to an agent that has few descriptors. They take a bounded number of descriptors and
// little memory, and the agent continues to work.
func TestAgentIdleConnectionsCostLittle(t *testing.T) {
	t.Parallel()
	const few = 1024
	const much = 64 << 20
	shop := t.TempDir()
	if err := copyShop(shop); err != nil {
		t.Fatal(err)
	}
	pid := 0
	limited := func(c *exec.Cmd) error {
		c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, few), c.Path}, c.Args[1:]...)
		err := c.Start()
		if err == nil {
			pid = c.Process.Pid
		}
		return err
	}
	socket := filepath.Join(socketDir(t), "agent.sock")
	a := startProgramBy(t, limited, "sluice-agent", "dev", "--manifests", shop, "--metrics-address", "127.0.0.1:0", "--log-level", "info", "--api-socket", socket)
	a.socket = socket
	address := a.Line(`msg="metrics and health are served" address=(\S+)`)[1]
	a.ready()
	before := rss(t, pid)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for range min(renderertest.Extent(3000, 3000, 15000), int(limit.Cur/2)) / 2 {
		for network, at := range map[string]string{"tcp": address, "unix": socket} {
			c, err := net.Dial(network, at)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }() // maybe closed by the agent
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(open) > few/2 {
		t.Errorf("the agent has %d descriptors open, want %d at most", len(open), few/2)
	}
	if more := rss(t, pid) - before; more > much {
		t.Errorf("idle connections cost %d MiB", more>>20)
	}
	a.ready()
	if err := os.Remove(filepath.Join(shop, "60-data-policies.yaml")); err != nil {
		t.Fatal(err)
	}
	a.Line(`revision \d+ enforced`)
}
