package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/core"
)

// unbind removes all ACLs from the interface of an address, as another client might.
func (v *vpp) unbind(ip string) {
	v.t.Helper()
	conn, err := core.Connect(socketclient.NewVppClient(v.socket))
	if err != nil {
		v.t.Fatal(err)
	}
	defer conn.Disconnect()
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	none := &acl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(v.ports[ip])}
	if _, err := acl.NewServiceClient(conn).ACLInterfaceSetACLList(ctx, none); err != nil {
		v.t.Fatal(err)
	}
}

// TestCheckShowsForeignChanges changes a VPP behind its agent, which repairs it.
func TestCheckShowsForeignChanges(t *testing.T) {
	t.Parallel()
	v, _, a := startDemo(t)
	if out, code := a.ctl("check"); code != 0 || !strings.HasPrefix(out, "renderer acl  as installed, ") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	v.unbind(server)
	out, code := a.ctl("check")
	if code != 1 || !strings.Contains(out, "renderer acl  DIFFERS: 1 object, of ") || !strings.Contains(out, "has input [] and output [] of ours instead of ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	eventually(t, func() error {
		if out, code = a.ctl("check"); code != 0 {
			return fmt.Errorf("exit code %d\n%s", code, out)
		}
		return v.demoEnforced()
	})
	if !strings.Contains(out, "repaired since the agent started: binding 1\n") {
		t.Errorf("after the repair:\n%s", out)
	}
	v.stop()
	eventually(t, func() error {
		if out, code = a.ctl("check"); code != 2 {
			return context.DeadlineExceeded
		}
		return nil
	})
	if !strings.Contains(out, "renderer acl  not checked: ") {
		t.Errorf("without a VPP: %s", out)
	}
}
