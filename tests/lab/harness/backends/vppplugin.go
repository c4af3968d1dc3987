package backends

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	govpp "go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/plugin/binapi/sluice"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// NewPluginVPPs is NewVPPs for VPPs with Sluice's plugin, which a start-up file with the given text
// finds.
func NewPluginVPPs(binary, name, config, dir string) *VPPs {
	return &VPPs{binary: binary, dir: dir, config: config, plugins: []string{name}}
}

// PluginKind is that of the XDP renderer over VPPs with the plugin.
func (v *VPPs) PluginKind() Kind {
	return Kind{Name: "vpp-plugin", New: v.newPluginBackend, Slow: true}
}

// onPluginVPPs is onVPPs for VPPs with the plugin.
func onPluginVPPs(t *testing.T) Kind {
	t.Helper()
	name, config := vpptest.Plugin(t)
	v := NewPluginVPPs(vpptest.Binary(t), name, config, vpptest.ShortDir(t))
	t.Cleanup(v.Close)
	return v.PluginKind()
}

// pluginMessages are those of the renderer that writes to the plugin's memory.
var pluginMessages = messages{
	changes: []govpp.Message{&sluice.SluiceBind{}},
	reads:   []govpp.Message{&sluice.SluiceGet{}, &sluice.SluiceOpen{}, &interfaces.SwInterfaceDump{}},
}

// pluginBackend is the XDP renderer over a VPP with the plugin.
type pluginBackend struct {
	vppPackets
	from    *VPPs
	options plugin.Options
	plugin  *plugin.Renderer
	attach  *node.Attacher
}

var (
	_ Backend  = (*pluginBackend)(nil)
	_ Stateful = (*pluginBackend)(nil)
	_ Sender   = (*pluginBackend)(nil)
	_ Batched  = (*pluginBackend)(nil)
	_ Partial  = (*pluginBackend)(nil)
	_ Strict   = (*pluginBackend)(nil)
)

func (v *VPPs) newPluginBackend(prompt func()) (Backend, error) {
	ports, err := v.take()
	if err != nil {
		return nil, err
	}
	s := &pluginBackend{from: v, vppPackets: packetsOf(ports, pluginMessages)}
	memory, err := os.MkdirTemp(v.dir, "memory")
	if err != nil {
		return nil, err
	}
	s.options = plugin.Options{
		Adapter: s.tap, XDP: xdp.Options{OnChange: prompt},
		Memory: plugin.MemoryOptions{Directory: filepath.Join(memory, "m"), PodTunnels: true, Lines: 1 << 18, Slots: 1 << 12, Flows: 1 << 16},
	}
	if s.plugin, err = plugin.New(s.options); err != nil {
		return nil, err
	}
	s.attach = node.NewAttacher(s.plugin, ports)
	return s, nil
}

func (s *pluginBackend) Renderer() renderer.Renderer { return s.attach }

// Has implements Backend.
func (s *pluginBackend) Has(a netip.Addr) bool {
	_, ok := s.attach.At(a)
	return ok
}

// Sees implements Partial: some addresses VPP drops itself.
func (s *pluginBackend) Sees(f api.Flow) bool { return routable(f) }

// Passes implements Sender. An ICMP error is about a packet that was sent, if any may be.
func (s *pluginBackend) Passes(p vswitch.Packet) bool {
	out := vpptest.Packet{Packet: p}
	if isError(p) {
		f := permittedFlow(p.Dst, p.Src, s.plugin.State().Tables, s.Verdict)
		s.First(f)
		about := vswitch.FlowPacket(f)
		out.About = &about
	}
	return s.sends(out)
}

// Drops implements Strict: a later fragment has the ports of the first one, which was not sent, and
// no router forwards neighbour discovery.
func (s *pluginBackend) Drops(p vswitch.Packet) bool {
	return p.NonFirstFragment || p.Protocol == api.ICMPv6 && (p.ICMPType == solicitation || p.ICMPType == advertisement)
}

// Restart implements Backend.
func (s *pluginBackend) Restart() error {
	if err := s.plugin.Close(); err != nil {
		return err
	}
	r, err := plugin.New(s.options)
	if err != nil {
		return err
	}
	s.plugin, s.attach.Renderer = r, r
	return nil
}

// Close empties the VPP and gives it back.
func (s *pluginBackend) Close() error {
	return errors.Join(s.plugin.Close(), s.from.giveBack(s.ports))
}

// Installed implements Backend. It names pods and not their interfaces, whose indexes, and so the
// order of pods in tables, are those of this VPP.
func (s *pluginBackend) Installed() (string, error) {
	state := s.plugin.State()
	if state.Err != nil {
		return "", state.Err
	}
	var lines []string
	for _, e := range s.plugin.Endpoints() {
		lines = append(lines, fmt.Sprintf("a pod with %s\n", e.IPs))
	}
	for _, t := range state.Tables {
		direction, _, _ := strings.Cut(t.Name, " ")
		for _, pod := range t.Pods {
			lines = append(lines, fmt.Sprintf("%s of %s: %v\n", direction, pod, t.Rules))
		}
	}
	for id, members := range s.plugin.Members() {
		lines = append(lines, fmt.Sprintf("set %s: %v\n", id, members))
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

// Dangling implements Backend: interfaces that are bound and are no endpoints.
func (s *pluginBackend) Dangling() (out []string) {
	ctx, cancel := vpptest.Bounded(s.ports.TB)
	defer cancel()
	got, err := sluice.NewServiceClient(s.ports.Conn).SluiceGet(ctx, &sluice.SluiceGet{})
	if err != nil {
		return []string{err.Error()}
	}
	for _, n := range got.Interfaces {
		if _, known := s.plugin.Endpoints()[uint32(n.SwIfIndex)]; n.State == sluice.SLUICE_API_BOUND && !known {
			out = append(out, fmt.Sprintf("interface %d is bound and is no endpoint", n.SwIfIndex))
		}
	}
	return out
}
