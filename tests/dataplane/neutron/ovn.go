package neutron

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// OVN are the databases of an OVN and its northd, without a chassis.
type OVN struct {
	NB, SB string // connections of clients
	socket string // of SB
}

// startOVN starts the two databases and northd.
func (s *Server) startOVN(ctx context.Context) (*OVN, error) {
	o := &OVN{}
	for _, db := range []struct {
		name string
		at   *string
	}{{"nb", &o.NB}, {"sb", &o.SB}} {
		file, socket := filepath.Join(s.dir, db.name+".db"), filepath.Join(s.dir, db.name+".sock")
		if err := s.run(ctx, "ovsdb-tool", "create", file, "/usr/share/ovn/ovn-"+db.name+".ovsschema"); err != nil {
			return nil, err
		}
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		err = s.start(ctx, "ovsdb-server", "--no-chdir", "--unixctl="+filepath.Join(s.dir, db.name+".ctl"),
			"--remote=punix:"+socket, fmt.Sprintf("--remote=ptcp:%d:127.0.0.1", port), file)
		if err != nil {
			return nil, err
		}
		*db.at, o.socket = fmt.Sprintf("tcp:127.0.0.1:%d", port), socket
		if err := until(ctx, "ovsdb-server", func() error { _, err := os.Stat(socket); return err }); err != nil {
			return nil, err
		}
	}
	if err := s.run(ctx, "ovn-nbctl", "--db="+o.NB, "init"); err != nil {
		return nil, err
	}
	err := s.start(ctx, "ovn-northd", "--ovnnb-db="+o.NB, "--ovnsb-db="+o.SB, "--unixctl="+filepath.Join(s.dir, "northd.ctl"), "--no-chdir")
	return o, err
}

// Sync waits until northd has compiled what Neutron wrote.
func (o *OVN) Sync(ctx context.Context) error { return o.wait(ctx, "sb") }

// Installed waits until every chassis forwards as OVN says.
func (o *OVN) Installed(ctx context.Context) error { return o.wait(ctx, "hv") }

func (o *OVN) wait(ctx context.Context, until string) error {
	if out, err := exec.CommandContext(ctx, "ovn-nbctl", "--db="+o.NB, "--timeout=120", "--wait="+until, "sync").CombinedOutput(); err != nil {
		return fmt.Errorf("ovn-nbctl sync: %w: %s", err, out)
	}
	return nil
}

// Trace returns what OVN does with the first packet of a flow from a port. Both ports track it as a
// new connection.
func (o *OVN) Trace(ctx context.Context, network, port string, microflow string) (string, error) {
	out, err := exec.CommandContext(ctx, "ovn-trace", "--db="+o.SB, "--minimal", "--ct=new", "--ct=new", "neutron-"+network,
		fmt.Sprintf(`inport == %q && %s`, port, microflow)).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ovn-trace: %w: %s", err, out)
	}
	return string(out), nil
}

// microflow is the first packet of a flow between two MAC addresses, as ovn-trace reads it.
func microflow(f api.Flow, srcMAC, dstMAC string) string {
	ip, icmp := "ip4", "icmp4.type == 8"
	if f.Src.Is6() {
		ip, icmp = "ip6", "icmp6.type == 128"
	}
	parts := []string{
		"eth.src == " + srcMAC, "eth.dst == " + dstMAC, fmt.Sprintf("%s.src == %s", ip, f.Src), fmt.Sprintf("%s.dst == %s", ip, f.Dst), "ip.ttl == 64",
	}
	switch f.Protocol {
	case api.TCP, api.UDP, api.SCTP:
		parts = append(parts, fmt.Sprintf("%s.src == %d", f.Protocol, f.SrcPort), fmt.Sprintf("%s.dst == %d", f.Protocol, f.DstPort))
	case api.ICMP, api.ICMPv6:
		parts = append(parts, icmp)
	default:
		parts = append(parts, fmt.Sprintf("ip.proto == %d", f.Protocol))
	}
	return strings.Join(parts, " && ")
}
