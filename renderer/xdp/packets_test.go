package xdp_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/plugin/plugintest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// lab is one pod, whose packets are crafted.
type lab struct {
	t      *testing.T
	plane  classifier
	kernel *xdp.Kernel // the plane, if it is in the kernel
	r      *xdp.Renderer
	rig    *labOptions
}

// classifier is a dataplane that judges crafted packets: the kernel, or an ordinary program.
type classifier interface {
	xdp.Dataplane
	Probe(id uint32, dir compile.Direction, frame []byte) (bool, error)
	Age(d time.Duration) error
	FlowCount() (int, error)
}

// makeLab is newLab, or newProgramLab.
type makeLab func(t *testing.T, change ...func(*labOptions)) *lab

// everywhere runs a test in the kernel, and with the same classifier as an ordinary program.
func everywhere(t *testing.T, test func(t *testing.T, newLab makeLab)) {
	t.Run("kernel", func(t *testing.T) { test(t, newLab) })
	t.Run("program", func(t *testing.T) { test(t, newProgramLab) })
}

type labOptions struct {
	options xdp.Options
	kernel  xdp.KernelOptions
}

var (
	labPod  = api.PodID{Namespace: "lab", Name: "pod"}
	own4    = netip.MustParseAddr("10.0.0.1")
	own6    = netip.MustParseAddr("fd00::1")
	friend4 = netip.MustParseAddr("10.0.9.9")
	friend6 = netip.MustParseAddr("fd00::9:9")
	other4  = netip.MustParseAddr("10.0.9.8")
	other6  = netip.MustParseAddr("fd00::9:8")
)

const labID = 7

func newLab(t *testing.T, change ...func(*labOptions)) *lab {
	t.Helper()
	o := labOptionsOf(change)
	k := newKernel(t, o.kernel)
	l := labOver(t, k, o)
	l.kernel = k
	return l
}

func newProgramLab(t *testing.T, change ...func(*labOptions)) *lab {
	t.Helper()
	o := labOptionsOf(change)
	return labOver(t, plugintest.New(t, plugin.MemoryOptions{
		AnySource: o.kernel.AnySource, Lines: 1 << 18, Slots: 1 << 12, Flows: o.kernel.Flows, FlowCacheThreshold: o.kernel.FlowCacheThreshold,
	}), o)
}

func labOptionsOf(change []func(*labOptions)) *labOptions {
	o := &labOptions{kernel: xdp.KernelOptions{Mode: xdp.ModeNone, Flows: 256}}
	for _, c := range change {
		c(o)
	}
	return o
}

func labOver(t *testing.T, plane classifier, o *labOptions) *lab {
	t.Helper()
	t.Cleanup(func() {
		if err := plane.Close(); err != nil {
			t.Error(err)
		}
	})
	o.options.Dataplane = plane
	if o.options.Interfaces == nil {
		o.options.Interfaces = func(pod api.PodID, _ []netip.Addr) []uint32 {
			if pod == labPod {
				return []uint32{labID}
			}
			return []uint32{labID + 1}
		}
	}
	r, err := xdp.New(o.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return &lab{t: t, plane: plane, r: r, rig: o}
}

// render gives the pod rules for traffic to it and from it; nil: no list.
func (l *lab) render(toPod, fromPod []api.ContivRule) {
	l.t.Helper()
	list := func(rules []api.ContivRule) *renderer.RuleList {
		if rules == nil {
			return nil
		}
		return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
	}
	changes := renderer.Changes{Resync: true}
	changes.Render(labPod, renderer.PodConfig{IPs: []netip.Addr{own4, own6}, Egress: list(toPod), Ingress: list(fromPod)})
	if err := l.r.Apply(l.t.Context(), changes); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) send(dir compile.Direction, frame []byte) bool {
	l.t.Helper()
	ok, err := l.plane.Probe(labID, dir, frame)
	if err != nil {
		l.t.Fatal(err)
	}
	return ok
}

// want checks the verdict on a packet to the pod or from it.
func (l *lab) want(permitted bool, what string, dir compile.Direction, frame []byte) {
	l.t.Helper()
	if got := l.send(dir, frame); got != permitted {
		l.t.Errorf("%s: permitted is %t, want %t", what, got, permitted)
	}
}

func tcpFlow(src, dst netip.Addr, sport, dport uint16) api.Flow {
	return api.Flow{Src: src, Dst: dst, Protocol: api.TCP, SrcPort: sport, DstPort: dport}
}

func udpFlow(src, dst netip.Addr, sport, dport uint16) api.Flow {
	return api.Flow{Src: src, Dst: dst, Protocol: api.UDP, SrcPort: sport, DstPort: dport}
}

func permitTCP(n api.Net, port uint16, dir compile.Direction) api.ContivRule {
	r := api.ContivRule{Action: api.Permit, Src: n, Protocol: api.TCP, DstPort: api.Port(port)}
	if dir == compile.FromPod {
		r.Src, r.Dst = r.Dst, r.Src
	}
	return r
}

// flags sets the flags of a TCP frame.
func flags(frame []byte, f byte) []byte {
	at := 14 + 20 + 13
	if frame[12] == 0x86 {
		at = 14 + 40 + 13
	}
	frame[at] = f
	return frame
}

const (
	ack = 0x10
	rst = 0x04
)

var closed = []api.ContivRule{}

func TestPacketIPOptionsAreNoPorts(t *testing.T) { everywhere(t, testPacketIPOptionsAreNoPorts) }

func testPacketIPOptionsAreNoPorts(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}, nil)
	l.want(true, "port 80", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false))
	l.want(false, "port 22", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 22), false))
	options := func(port uint16, option []byte) []byte {
		f := xdp.Frame(tcpFlow(friend4, own4, 4000, port), false)
		out := append([]byte{}, f[:34]...)
		out = append(append(out, option...), f[34:]...)
		out[14] = 0x40 | byte(5+len(option)/4)
		binary.BigEndian.PutUint16(out[16:], uint16(len(out)-14))
		return out
	}
	looks80 := []byte{0x0f, 0xa0, 0, 80}
	l.want(false, "port 22 behind options that look like port 80", compile.ToPod, options(22, looks80))
	l.want(true, "port 80 behind options", compile.ToPod, options(80, looks80))
	l.want(false, "port 22 behind 40 bytes of options", compile.ToPod, options(22, make([]byte, 40)))
}

// fragment makes a fragment of a frame of IPv4: its offset is in units of 8 bytes.
func fragment(frame []byte, id uint16, offset int, more bool, payload []byte) []byte {
	out := append([]byte{}, frame[:34]...)
	if payload == nil {
		payload = frame[34:]
	}
	out = append(out, payload...)
	binary.BigEndian.PutUint16(out[16:], uint16(len(out)-14))
	binary.BigEndian.PutUint16(out[18:], id)
	field := uint16(offset)
	if more {
		field |= 0x2000
	}
	binary.BigEndian.PutUint16(out[20:], field)
	return out
}

func TestFragmentsForgedDoNotPass(t *testing.T) { everywhere(t, testFragmentsForgedDoNotPass) }

func testFragmentsForgedDoNotPass(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render([]api.ContivRule{{Action: api.Permit, Src: api.AddrNet(friend4), Protocol: api.UDP, DstPort: api.Port(53)}}, nil)
	allowed := xdp.Frame(udpFlow(friend4, own4, 4000, 53), false)
	denied := xdp.Frame(udpFlow(friend4, own4, 4000, 54), false)
	forged := xdp.Frame(udpFlow(friend4, own4, 4000, 53), false)[34:]
	l.want(false, "a later fragment whose bytes look like port 53", compile.ToPod, fragment(denied, 1, 3, true, forged))
	l.want(false, "a first fragment of a denied packet", compile.ToPod, fragment(denied, 2, 0, true, nil))
	l.want(false, "a later fragment of a denied packet", compile.ToPod, fragment(denied, 2, 1, false, forged))
	l.want(true, "a first fragment", compile.ToPod, fragment(allowed, 3, 0, true, nil))
	l.want(true, "its later fragment", compile.ToPod, fragment(allowed, 3, 1, false, []byte("hello wo")))
	l.want(false, "a later fragment of another packet", compile.ToPod, fragment(allowed, 4, 1, false, []byte("hello wo")))
	l.want(false, "a later fragment of another packet with the same entry", compile.ToPod, fragment(allowed, 3+64, 1, false, []byte("hello wo")))
	l.want(false, "a later fragment from elsewhere", compile.ToPod, fragment(xdp.Frame(udpFlow(other4, own4, 4000, 53), false), 3, 1, false, []byte("hello wo")))
}

// TestFragmentsOfLongPacketPass whose first one has all that most packets are known by.
func TestFragmentsOfLongPacketPass(t *testing.T) { everywhere(t, testFragmentsOfLongPacketPass) }

func testFragmentsOfLongPacketPass(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}, nil)
	frame := xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false)
	l.want(true, "a first fragment", compile.ToPod, fragment(frame, 3, 0, true, frame[34:50]))
	l.want(true, "its later fragment", compile.ToPod, fragment(frame, 3, 2, false, []byte("hello wo")))
}

// TestFragmentsOfOtherDirectionDoNotMatch lets the pod send a fragment with the
// identification of a packet that it received.
func TestFragmentsOfOtherDirectionDoNotMatch(t *testing.T) {
	everywhere(t, testFragmentsOfOtherDirectionDoNotMatch)
}

func testFragmentsOfOtherDirectionDoNotMatch(t *testing.T, newLab makeLab) {
	l := newLab(t)
	udp := func(port uint16) []api.ContivRule {
		return []api.ContivRule{{Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(port)}}
	}
	l.render(udp(53), udp(4000))
	frame := xdp.Frame(udpFlow(friend4, own4, 4000, 53), false)
	l.want(true, "a first fragment to the pod", compile.ToPod, fragment(frame, 3, 0, true, nil))
	l.want(false, "a later fragment from the pod", compile.FromPod, fragment(xdp.Frame(udpFlow(friend4, own4, 4000, 53), true), 3, 1, false, []byte("hello wo")))
	l.want(true, "a later fragment to the pod", compile.ToPod, fragment(frame, 3, 1, false, []byte("hello wo")))
}

func TestFragmentsPermittedOnAllPortsPass(t *testing.T) {
	everywhere(t, testFragmentsPermittedOnAllPortsPass)
}

func testFragmentsPermittedOnAllPortsPass(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render([]api.ContivRule{{Action: api.Permit, Src: api.AddrNet(friend4)}}, nil)
	l.want(true, "a later fragment", compile.ToPod, fragment(xdp.Frame(udpFlow(friend4, own4, 1, 2), false), 9, 5, true, nil))
	l.want(false, "a later fragment from elsewhere", compile.ToPod, fragment(xdp.Frame(udpFlow(other4, own4, 1, 2), false), 9, 5, true, nil))
	l.want(true, "a later fragment of TCP", compile.ToPod, fragment(xdp.Frame(tcpFlow(friend4, own4, 1, 2), false), 9, 2, true, nil))
	l.want(false, "one that would write over the flags of TCP", compile.ToPod, fragment(xdp.Frame(tcpFlow(friend4, own4, 1, 2), false), 9, 1, true, nil))
}

func TestPacketHeadersTooShortDoNotPass(t *testing.T) {
	everywhere(t, testPacketHeadersTooShortDoNotPass)
}

func testPacketHeadersTooShortDoNotPass(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod), permitTCP(api.AddrNet(friend6), 80, compile.ToPod)}, nil)
	frame := func() []byte { return xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false) }
	for what, change := range map[string]func(f []byte) []byte{
		"a header of IPv4 of 16 bytes":              func(f []byte) []byte { f[14] = 0x44; return f },
		"a total length that ends before the ports": func(f []byte) []byte { f[16], f[17] = 0, 22; return f },
		"a total length that ends before the flags": func(f []byte) []byte { f[16], f[17] = 0, 32; return f },
		"a total length of less than the header":    func(f []byte) []byte { f[16], f[17] = 0, 19; return f },
		"no total length":                           func(f []byte) []byte { f[16], f[17] = 0, 0; return f },
		"a packet that ends in its ports":           func(f []byte) []byte { return f[:36] },
		"another version":                           func(f []byte) []byte { f[14] = 0x65; return f },
		"a first fragment without the flags":        func(f []byte) []byte { return fragment(f, 1, 0, true, f[34:42]) },
		"a second fragment that would write flags":  func(f []byte) []byte { return fragment(f, 1, 1, false, f[42:]) },
	} {
		l.want(false, what, compile.ToPod, change(frame()))
	}
	l.want(true, "the packet as it is", compile.ToPod, frame())
	six := func() []byte { return xdp.Frame(tcpFlow(friend6, own6, 4000, 80), false) }
	l.want(true, "IPv6 as it is", compile.ToPod, six())
	short := six()
	short[19] = 10
	l.want(false, "a payload length that ends before the flags", compile.ToPod, short)
}

// extended puts extension headers into a frame of IPv6.
func extended(frame []byte, types ...byte) []byte {
	out := append([]byte{}, frame[:54]...)
	next := frame[20]
	out[20] = types[0]
	for i := range types {
		h := make([]byte, 8)
		if h[0] = next; i+1 < len(types) {
			h[0] = types[i+1]
		}
		if types[i] == 51 {
			h = append(h, make([]byte, 4)...)
			h[1] = 1
		}
		out = append(out, h...)
	}
	out = append(out, frame[54:]...)
	binary.BigEndian.PutUint16(out[18:], uint16(len(out)-54))
	return out
}

func TestPacketExtensionHeadersAreParsed(t *testing.T) {
	everywhere(t, testPacketExtensionHeadersAreParsed)
}

func testPacketExtensionHeadersAreParsed(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend6), 80, compile.ToPod)}, nil)
	allowed, denied := tcpFlow(friend6, own6, 4000, 80), tcpFlow(friend6, own6, 4000, 22)
	for _, types := range [][]byte{{0}, {60}, {43}, {0, 60, 43, 60}, {51}, {0, 51, 60}, {135}, {60, 60, 60, 60, 60, 60, 60, 60}} {
		l.want(true, "port 80 behind extension headers", compile.ToPod, extended(xdp.Frame(allowed, false), types...))
		l.want(false, "port 22 behind extension headers", compile.ToPod, extended(xdp.Frame(denied, false), types...))
	}
	l.want(false, "nine extension headers", compile.ToPod, extended(xdp.Frame(allowed, false), 60, 60, 60, 60, 60, 60, 60, 60, 60))
	atomic := extended(xdp.Frame(allowed, false), 44)
	l.want(true, "a fragment that is the whole", compile.ToPod, atomic)
	later := extended(xdp.Frame(allowed, false), 44)
	later[54+3] = 0x08 // offset 1
	l.want(false, "an unmatched later fragment", compile.ToPod, later)
	wrong := extended(xdp.Frame(allowed, false), 60)
	wrong[55] = 200
	l.want(false, "an extension header that is longer than the packet", compile.ToPod, wrong)
}

// tagged puts tags of VLANs into a frame, which is read slowly then.
func tagged(frame []byte, tags int) []byte {
	out := append([]byte{}, frame[:12]...)
	for range tags {
		out = append(out, 0x81, 0, 0, 5)
	}
	return append(out, frame[12:]...)
}

func TestPacketVLANTagsAreParsed(t *testing.T) {
	l := newLab(t, func(o *labOptions) { o.kernel.NonIP = true })
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}, nil)
	allowed, denied := xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false), xdp.Frame(tcpFlow(friend4, own4, 4000, 22), false)
	for tags := range 3 {
		l.want(true, "port 80", compile.ToPod, tagged(allowed, tags))
		l.want(false, "port 22", compile.ToPod, tagged(denied, tags))
	}
	l.want(false, "three tags", compile.ToPod, tagged(allowed, 3))
}

func TestSourceAddressMustBeOfPod(t *testing.T) { everywhere(t, testSourceAddressMustBeOfPod) }

func testSourceAddressMustBeOfPod(t *testing.T, newLab makeLab) {
	for name, rules := range map[string][]api.ContivRule{"without a list": nil, "with a list": {{Action: api.Permit}}} {
		l := newLab(t)
		l.render(nil, rules)
		l.want(true, name+": own address", compile.FromPod, xdp.Frame(tcpFlow(own4, other4, 1, 2), false))
		l.want(true, name+": own address of IPv6", compile.FromPod, xdp.Frame(tcpFlow(own6, friend6, 1, 2), false))
		l.want(false, name+": another address", compile.FromPod, xdp.Frame(tcpFlow(friend4, other4, 1, 2), false))
		l.want(false, name+": another address of IPv6", compile.FromPod, xdp.Frame(tcpFlow(friend6, own6, 1, 2), false))
	}
	l := newLab(t, func(o *labOptions) { o.kernel.AnySource = true })
	l.render(nil, []api.ContivRule{{Action: api.Permit}})
	l.want(true, "any source is allowed", compile.FromPod, xdp.Frame(tcpFlow(friend4, other4, 1, 2), false))
}

// TestSourceAddressMayBeAnyOfPod and from no others, also to themselves, with any lists.
func TestSourceAddressMayBeAnyOfPod(t *testing.T) { everywhere(t, testSourceAddressMayBeAnyOfPod) }

func testSourceAddressMayBeAnyOfPod(t *testing.T, newLab makeLab) {
	four := []string{"10.0.0.1", "10.0.0.4", "10.0.1.4"}
	six := []string{"fd00::1", "fd00::4", "fd00::1:4", "fd00::1:0:0:4", "fd01::4", "fd02::7"}
	for name, rules := range map[string][]api.ContivRule{"without a list": nil, "with a list": {{Action: api.Permit}}, "closed": closed} {
		l := newLab(t)
		cfg := renderer.PodConfig{}
		if rules != nil {
			cfg.Ingress = renderer.NewRuleList(append(slices.Clone(rules), api.ContivRule{}), nil)
		}
		for _, a := range slices.Concat(four, six) {
			cfg.IPs = append(cfg.IPs, netip.MustParseAddr(a))
		}
		l.renderList(cfg)
		for _, a := range cfg.IPs {
			same, foreign, friend := cfg.IPs[:len(four)], other4, friend4
			if a.Is6() {
				same, foreign, friend = cfg.IPs[len(four):], friend6, friend6
			}
			l.want(len(rules) > 0 || rules == nil, name+": from "+a.String(), compile.FromPod, xdp.Frame(tcpFlow(a, friend, 1, 2), false))
			for _, own := range same {
				l.want(true, name+": to itself, from "+a.String(), compile.FromPod, xdp.Frame(tcpFlow(a, own, 1, 2), false))
			}
			for _, beside := range []netip.Addr{a.Next(), a.Prev(), foreign} {
				if !slices.Contains(cfg.IPs, beside) {
					l.want(false, name+": from "+beside.String(), compile.FromPod, xdp.Frame(tcpFlow(beside, friend, 1, 2), false))
				}
			}
			words := a.AsSlice()
			for i := range words { // one bit of each byte is another
				words[i] ^= 0x40
				if wrong, _ := netip.AddrFromSlice(words); wrong != friend {
					l.want(false, name+": from "+wrong.String(), compile.FromPod, xdp.Frame(tcpFlow(wrong, friend, 1, 2), false))
				}
				words[i] ^= 0x40
			}
		}
	}
}

func TestInterfaceUnknownIsBlocked(t *testing.T) { everywhere(t, testInterfaceUnknownIsBlocked) }

func testInterfaceUnknownIsBlocked(t *testing.T, newLab makeLab) {
	l := newLab(t, func(*labOptions) {})
	l.want(false, "a packet to it", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 1, 2), false))
}
