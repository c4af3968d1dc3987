package attacks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// road is a VPP with Sluice's plugin and the pods of street: a is hostile, b its peer, c another
// one.
type road struct {
	*world
	t      *testing.T
	vpp    *vpptest.Network
	r      renderer.Renderer
	pods   map[string]end
	cables map[string]vpptest.Cable
	sent   int // by a
}

// TestHostilePodsOfVPPPlugin sends every kind into a VPP with Sluice's plugin: what must be dropped
// does not arrive.
func TestHostilePodsOfVPPPlugin(t *testing.T) {
	name, config := vpptest.Plugin(t)
	d := &road{t: t, vpp: vpptest.NewNetwork(vpptest.LaunchWith(t, config, name, "af_packet_plugin.so")), cables: map[string]vpptest.Cable{}, pods: map[string]end{}}
	for i, pod := range []string{"a", "b", "c"} {
		last := byte(i + 2)
		e := end{mac: []byte{2, 1, 1, 1, 1, last}, v4: netip.AddrFrom4([4]byte{10, 99, 0, last}), v6: netip.AddrFrom16([16]byte{0xfd, 15: last})}
		tag := vpp.PodTag("attacks/" + pod)
		d.pods[pod], d.cables[pod] = e, d.vpp.Connect(t, pod, tag)
		d.vpp.Route(e.v4, tag)
		d.vpp.Route(e.v6, tag)
	}
	d.world = &world{pod: d.pods["a"], peer: d.pods["b"], gateway: vpptest.CableMAC[:], via: vpptest.CableMAC[:]}
	r, err := plugin.New(plugin.Options{Socket: d.vpp.Socket(), Memory: plugin.MemoryOptions{Directory: filepath.Join(t.TempDir(), "memory"), Lines: 1 << 18, Slots: 1 << 12, Flows: 1 << 14}})
	d.must(err)
	t.Cleanup(func() { d.must(r.Close()) })
	d.r = r
	for situation, in := range situations {
		toPod, fromPod := lists(situation, d.peer)
		d.apply("a", toPod, fromPod)
		frames, got := d.all()
		for mark, k := range frames {
			want := k.fate[situation]
			switch {
			case want != "" && got[mark] > 0 && (situation != 2 || !untagged.MatchString(k.name)):
				t.Errorf("%s, IPv%d: %s: it arrives, want that it is dropped for %q", in, k.family, k.name, want)
			case want == "" && k.arrives && !k.bridged && got[mark] != 1:
				t.Errorf("%s, IPv%d: %s: it arrives %d times, want once", in, k.family, k.name, got[mark])
			}
		}
	}
	d.apply("b", renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.AddrNet(d.pods["c"].v4)}, {}}, nil), renderer.NewRuleList([]api.ContivRule{{}}, nil))
	frames, got := d.all()
	for mark, k := range frames {
		if k.fate[1] != "" && got[mark] > 0 {
			t.Errorf("to a pod that nobody may send to, IPv%d: %s: it arrives", k.family, k.name)
		}
	}
}

// untagged are kinds whose tag VPP removes, since VLAN 0 is none. What is left is permitted.
var untagged = regexp.MustCompile(`VLAN 0, UDP to port 53$`)

func (d *road) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatalf("%+v", err)
	}
}

// apply is that of rig.
func (d *road) apply(name string, toPod, fromPod *renderer.RuleList) {
	d.t.Helper()
	changes := renderer.Changes{Resync: true}
	for pod, e := range d.pods {
		c := renderer.PodConfig{IPs: []netip.Addr{e.v4, e.v6}}
		if pod == name {
			c.Egress, c.Ingress = toPod, fromPod
		}
		changes.Render(api.PodID{Namespace: "attacks", Name: pod}, c)
	}
	d.must(d.r.Apply(d.t.Context(), changes))
}

// all is that of street.
func (d *road) all() (frames map[uint64]sent, got map[uint64]int) {
	d.t.Helper()
	frames = d.every(func(frame []byte) {
		d.must(d.cables["a"].Write(frame))
		d.sent++
	})
	return frames, d.heard()
}

var received = regexp.MustCompile(`rx packets +(\d+)`)

// heard returns the marks of what arrived at the peer so far: the last is a datagram of another
// pod, which is sent when VPP has taken all.
func (d *road) heard() map[uint64]int {
	d.t.Helper()
	vpptest.Eventually(d.t, "VPP to take all frames", func() bool {
		m := received.FindStringSubmatch(d.vpp.CLI("show interface %s", d.cables["a"].Link.Name))
		if m == nil {
			return false
		}
		n, err := strconv.Atoi(m[1])
		return err == nil && n >= d.sent
	})
	other := *d.world
	other.pod, other.family, other.mark = d.pods["c"], 4, d.mark+1
	d.mark++
	d.must(d.cables["c"].Write(other.ip(packet{protocol: 17, body: other.udp(9)})))
	out := map[uint64]int{}
	for b, end := make([]byte, 1<<17), time.Now().Add(vpptest.Patience); ; {
		if time.Now().After(end) {
			d.t.Fatal("nothing arrives that is sent last")
		}
		n, _, err := d.cables["b"].Read(b)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		d.must(err)
		i := bytes.LastIndex(b[:n], []byte("sluice"))
		if i < 0 || i+14 > n {
			continue
		}
		mark := binary.BigEndian.Uint64(b[i+6:])
		if mark == d.mark {
			return out
		}
		out[mark]++
	}
}
