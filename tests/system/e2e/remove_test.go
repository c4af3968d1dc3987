package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// guideCommand returns the arguments of the command in the guide about removing that begins so.
func guideCommand(t *testing.T, begin string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "docs", "guide", "remove.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), begin) {
			return strings.Fields(s.Text())[1:]
		}
	}
	t.Fatalf("the guide has no command %q", begin)
	return nil
}

// here puts the addresses of a test in the place of those of the guide.
func here(args []string, etcd, vpp string) []string {
	for i, arg := range args {
		switch arg {
		case "10.0.0.1:2379":
			args[i] = etcd
		case "/run/vpp/api.sock":
			args[i] = vpp
		}
	}
	return args
}

// TestVPPIsEmptiedAsInGuide has an agent with an empty prefix take away what one before left.
func TestVPPIsEmptiedAsInGuide(t *testing.T) {
	t.Parallel()
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	space := v.sw.AddNamespace("demo/stranger")
	etcd := startEtcd(t)
	store(t, etcd, demo)
	a := startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", etcd, "--vpp-socket", v.socket, "--renderers", "acl,session")
	a.ready()
	a.stop(syscall.SIGTERM)
	open := func() bool {
		f := api.Flow{Src: netip.MustParseAddr(stranger), Dst: netip.MustParseAddr(server), Protocol: api.TCP, SrcPort: 40000, DstPort: 80}
		return v.permits(stranger, server, 80) && v.sw.Connect(space, f).Action == api.Permit
	}
	if acls, rules := v.sw.ACLs(), v.sw.SessionRules(); open() || len(acls) == 0 || len(rules) == 0 {
		t.Fatalf("without an agent there are %v and %v", acls, rules)
	}
	ctl(t, here(guideCommand(t, "sluicectl store accept --etcd-prefix"), etcd, v.socket)...)
	args := here(guideCommand(t, "sluice-agent run --node node-1 --etcd-prefix"), etcd, v.socket)
	empty := startAgent(t, append(slices.Clone(args), "--metrics-address=")...)
	eventually(t, func() error {
		if !open() {
			return errors.New("policy is still enforced")
		}
		if acls, rules := v.sw.ACLs(), v.sw.SessionRules(); len(acls)+len(rules) > 0 {
			return fmt.Errorf("there still are %v and %v", acls, rules)
		}
		return nil
	})
	empty.stop(syscall.SIGTERM)
}
