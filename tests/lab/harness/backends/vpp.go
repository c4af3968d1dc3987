package backends

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// VPPs makes backends of real VPPs, for any goroutine. A process that a backend has done with is
// emptied and used again.
type VPPs struct {
	binary  string
	dir     string
	config  string   // further text of start-up files
	plugins []string // in addition to that of ACLs

	mu   sync.Mutex
	all  []*vpptest.Process
	idle []*vppPorts
}

// NewVPPs takes the path of a vpp binary and a folder for the files of processes.
func NewVPPs(binary, dir string) *VPPs { return &VPPs{binary: binary, dir: dir} }

// Kind is that of the ACL renderer over a real VPP.
func (v *VPPs) Kind() Kind { return Kind{Name: "vpp", New: v.newBackend, Slow: true} }

// onVPPs returns the kind with VPPs that end with a test.
func onVPPs(t *testing.T) Kind {
	t.Helper()
	v := NewVPPs(vpptest.Binary(t), vpptest.ShortDir(t))
	t.Cleanup(v.Close)
	return v.Kind()
}

// Close ends all processes.
func (v *VPPs) Close() {
	for _, p := range v.all {
		p.Stop()
	}
}

// vppBackend is the ACL renderer over a VPP, with the interfaces of a packet generator
// as those of pods.
type vppBackend struct {
	vppPackets
	from    *VPPs
	options acl.Options
	acl     *acl.Renderer
	attach  *node.Attacher
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
	s := &vppBackend{from: v, vppPackets: packetsOf(ports, aclMessages)}
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
	if p := v.unused(); p != nil {
		if p.Sent < enough {
			return p, nil
		}
		p.Stop()
		p.Start()
		return newVPPPorts(p.Process), nil
	}
	dir, err := os.MkdirTemp(v.dir, "vpp")
	if err != nil {
		return nil, err
	}
	process := vpptest.New(loud{}, v.binary, dir, v.config, v.plugins...)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = append(v.all, process)
	return newVPPPorts(process), nil
}

// unused returns a process that no backend has any more; nil: there is none.
func (v *VPPs) unused() *vppPorts {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := len(v.idle)
	if n == 0 {
		return nil
	}
	p := v.idle[n-1]
	v.idle = v.idle[:n-1]
	return p
}

// giveBack empties a process of a backend.
func (v *VPPs) giveBack(p *vppPorts) error {
	err := p.empty()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.idle = append(v.idle, p)
	return err
}

// loud panics after an error of a VPP: no backend can continue then.
type loud struct{}

func (loud) Helper()                           {}
func (loud) Context() context.Context          { return context.Background() }
func (loud) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (loud) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (loud) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (s *vppBackend) Renderer() renderer.Renderer { return s.attach }

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
	return errors.Join(s.acl.Close(), s.from.giveBack(s.ports))
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
