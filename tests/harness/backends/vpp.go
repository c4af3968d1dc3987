package backends

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"go.fd.io/govpp/adapter/socketclient"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/vpp/vpptest"
)

// VPPs makes backends of real VPPs. A process that a backend has done with is emptied and
// used again.
type VPPs struct {
	binary string
	dir    string
	all    []*vpptest.Process
	idle   []*vppPorts
}

// NewVPPs takes the path of a vpp binary and a folder for the files of processes.
func NewVPPs(binary, dir string) *VPPs { return &VPPs{binary: binary, dir: dir} }

// Kind is that of the ACL renderer over a real VPP.
func (v *VPPs) Kind() Kind { return Kind{Name: "vpp", New: v.newBackend} }

// Close ends all processes.
func (v *VPPs) Close() {
	for _, p := range v.all {
		p.Stop()
	}
}

// vppBackend is the ACL renderer over a VPP, with the interfaces of a packet generator
// as those of pods.
type vppBackend struct {
	from    *VPPs
	ports   *vppPorts
	tap     *tap
	options acl.Options
	acl     *acl.Renderer
	attach  *node.Attacher
	judged  judged
}

var (
	_ Backend  = (*vppBackend)(nil)
	_ Stateful = (*vppBackend)(nil)
	_ Sender   = (*vppBackend)(nil)
	_ Batched  = (*vppBackend)(nil)
	_ Partial  = (*vppBackend)(nil)
)

func (v *VPPs) newBackend(prompt func()) (Backend, error) {
	ports, err := v.take()
	if err != nil {
		return nil, err
	}
	s := &vppBackend{from: v, ports: ports, tap: newTap(socketclient.NewVppClient(ports.Socket()), aclMessages)}
	s.options = acl.Options{Adapter: s.tap, OnChange: prompt}
	if s.acl, err = acl.New(s.options); err != nil {
		return nil, err
	}
	s.attach = node.NewAttacher(s.acl, ports)
	return s, nil
}

// enough is after how many packets a VPP is started anew: its table of sessions has room
// for 500 000, of which a packet may take two.
const enough = 100_000

// take returns an empty VPP.
func (v *VPPs) take() (*vppPorts, error) {
	if n := len(v.idle); n > 0 {
		p := v.idle[n-1]
		v.idle = v.idle[:n-1]
		if p.Sent < enough {
			return p, nil
		}
		p.Stop()
		p.Start()
		return newVPPPorts(p.Process), nil
	}
	dir := filepath.Join(v.dir, fmt.Sprint(len(v.all)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	process := vpptest.New(loud{}, v.binary, dir)
	v.all = append(v.all, process)
	return newVPPPorts(process), nil
}

// loud panics after an error of a VPP: no backend can continue then.
type loud struct{}

func (loud) Helper()                           {}
func (loud) Context() context.Context          { return context.Background() }
func (loud) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (loud) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (loud) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (s *vppBackend) Renderer() renderer.Renderer { return s.attach }
func (s *vppBackend) Operations() int             { return s.tap.operations() }
func (s *vppBackend) FailNext(n int)              { s.tap.failNext(n) }

// Has implements Backend.
func (s *vppBackend) Has(a netip.Addr) bool {
	_, ok := s.attach.At(a)
	return ok
}

// Restart implements Backend.
func (s *vppBackend) Restart() error {
	if err := s.acl.Close(); err != nil {
		return err
	}
	r, err := acl.New(s.options)
	if err != nil {
		return err
	}
	s.acl, s.attach.Renderer = r, r
	return nil
}

// Close empties the VPP and gives it back.
func (s *vppBackend) Close() error {
	err := s.acl.Close()
	s.from.idle = append(s.from.idle, s.ports)
	return errors.Join(err, s.ports.empty())
}

// Sees implements Partial: VPP sees no ports of protocols other than these, and takes
// all that one has between two addresses for one flow. Some addresses it drops itself.
func (s *vppBackend) Sees(f api.Flow) bool {
	return vpptest.Routable(f.Src) && vpptest.Routable(f.Dst) && slices.Contains([]api.Protocol{api.TCP, api.UDP, api.ICMP, api.ICMPv6}, f.Protocol)
}

// judged are verdicts that hold until something changes.
type judged struct {
	changes int
	of      map[api.Flow]api.Action
}

// Judge implements Batched.
func (s *vppBackend) Judge(flows []api.Flow) {
	s.judged = judged{s.changes(), make(map[api.Flow]api.Action, len(flows))}
	packets := make([]vpptest.Packet, len(flows))
	port := s.ports.nextPort()
	for i, f := range flows {
		packets[i] = fresh(f, port, uint32(i))
	}
	out := s.ports.Send(packets)
	for i, f := range flows {
		if s.judged.of[f] = api.Deny; out.Left[uint32(i)] != "" {
			s.judged.of[f] = api.Permit
		}
	}
}

// changes is another number after everything that may change a verdict.
func (s *vppBackend) changes() int { return s.tap.operations() + s.ports.changes }

// fresh returns the first packet of a flow, from a port that no flow has had.
func fresh(f api.Flow, port uint16, mark uint32) vpptest.Packet {
	if f.Protocol.HasPorts() {
		f.SrcPort = port
	}
	return vpptest.First(f, mark)
}

// Verdict implements Backend.
func (s *vppBackend) Verdict(f api.Flow) api.Action {
	if v, ok := s.judged.of[f]; ok && s.judged.changes == s.changes() {
		return v
	}
	if s.Passes(fresh(f, s.ports.nextPort(), 0).Packet) {
		return api.Permit
	}
	return api.Deny
}

// First implements Stateful.
func (s *vppBackend) First(f api.Flow) bool { return s.Passes(vswitch.FlowPacket(f)) }

// Reply implements Stateful.
func (s *vppBackend) Reply(f api.Flow) bool { return s.Passes(vswitch.FlowPacket(f).Reply()) }

// Passes implements Sender.
func (s *vppBackend) Passes(p vswitch.Packet) bool {
	return len(s.ports.Send([]vpptest.Packet{{Packet: p}}).Left) == 1
}

// Trace returns VPP's trace of a packet of the flow.
func (s *vppBackend) Trace(f api.Flow) string {
	s.ports.CLI("clear trace")
	s.ports.CLI("trace add pg-input 1")
	s.Passes(fresh(f, s.ports.nextPort(), 0).Packet)
	return s.ports.CLI("show trace")
}

// Installed implements Backend.
func (s *vppBackend) Installed() (string, error) {
	sw, err := s.ports.copied()
	if err != nil {
		return "", err
	}
	text, err := InstalledACL(s.acl, sw)
	return text, errors.Join(err, sw.Close())
}

// Dangling implements Backend.
func (s *vppBackend) Dangling() []string {
	sw, err := s.ports.copied()
	if err != nil {
		return []string{err.Error()}
	}
	out := DanglingACL(sw)
	if err := sw.Close(); err != nil {
		out = append(out, err.Error())
	}
	return out
}
