package etcd

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/sluice-net/sluice/tests/lab/programs"
)

// proxyEnv makes a process a gRPC proxy: the addresses of the members follow, after its own.
const proxyEnv = "SLUICE_TEST_ETCD_PROXY"

// serveProxy runs "etcd grpc-proxy" until its standard input ends.
func serveProxy(addresses string) {
	own, members, _ := strings.Cut(addresses, " ")
	go func() { // its stdin ends with the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	os.Args = []string{"etcd", "grpc-proxy", "start", "--endpoints=" + members, "--listen-addr=" + own}
	etcdmain.Main(os.Args)
}

// Proxy starts the gRPC proxy of etcd before the members, and returns where it listens and its
// process. It ends with the test.
func (c *Cluster) Proxy(t testing.TB) (address string, pid int) {
	t.Helper()
	address = programs.FreeAddress(t)
	p := exec.Command(os.Args[0])
	p.Env = append(os.Environ(), proxyEnv+"="+address+" "+strings.Join(c.Endpoints(), ","))
	stdin, err := p.StdinPipe()
	if err = errors.Join(err, p.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // then it ends
		_ = p.Wait()
	})
	return address, p.Process.Pid
}
