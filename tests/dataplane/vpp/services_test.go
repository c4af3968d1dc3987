package vpp

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// The services of the tests, each with one pod behind it.
var (
	serviceCIDR = netip.MustParsePrefix("10.96.0.0/16")
	friend      = map[bool]netip.Addr{false: netip.MustParseAddr("10.1.2.2"), true: netip.MustParseAddr("fd00:1:2::2")}
	enemy       = map[bool]netip.Addr{false: netip.MustParseAddr("10.1.2.3"), true: netip.MustParseAddr("fd00:1:2::3")}
	toFriend    = netip.MustParseAddr("10.96.0.2")
	toEnemy     = netip.MustParseAddr("10.96.0.3")
)

const (
	friendTag = "sluice/pod/test/friend"
	enemyTag  = "sluice/pod/test/enemy"
)

// translator is a way in which VPP turns the address of a service into that of a pod.
type translator struct {
	plugin  string
	prepare func(g *guarded)
	service string // a command with the address of the service, and that of the pod
}

var translators = map[string]translator{
	"cnat": {"cnat_plugin.so", func(*guarded) {}, "cnat translation add proto TCP vip %s 80 to ->%s 8080"},
	"nat44-ed": {"nat_plugin.so", func(g *guarded) {
		g.Do("nat44 plugin enable sessions 1024")
		g.Do("nat44 forwarding enable")
		for _, tag := range []string{podTag, friendTag, enemyTag} {
			g.Do("set interface nat44 out %s", g.Links[tag].Name)
		}
	}, "nat44 add static mapping tcp local %[2]s 8080 external %[1]s 80"},
	"nat44-ei": {"nat44_ei_plugin.so", func(g *guarded) {
		g.Do("nat44 ei plugin enable sessions 1024")
		g.Do("nat44 ei forwarding enable")
		g.Do("nat44 ei add address %s-%s", toFriend, toEnemy)
		for _, tag := range []string{podTag, friendTag, enemyTag} {
			g.Do("set interface nat44 ei out %s", g.Links[tag].Name)
		}
	}, "nat44 ei add static mapping tcp local %[2]s 8080 external %[1]s 80"},
}

// toService sends the first packet of a connection from the pod, and returns the tag of the
// interface by which it leaves, empty when it does not.
func (g *guarded) toService(dst netip.Addr, port uint16) string {
	g.mark++
	p := vpptest.First(api.Flow{Src: podAddress[false], Dst: dst, Protocol: api.TCP, SrcPort: uint16(20_000 + g.mark), DstPort: port}, g.mark)
	return g.Inject([]vpptest.Packet{p}).Left[g.mark]
}

// TestVPPTranslatesBehindInput has VPP translate addresses of services in each way that it can:
// ACLs of what enters meet the service, those of what leaves the pod behind it. So the first need
// to know services, and the others decide.
func TestVPPTranslatesBehindInput(t *testing.T) {
	for name, tr := range translators {
		t.Run(name, func(t *testing.T) {
			for _, known := range []bool{true, false} {
				var log bytes.Buffer
				o := acl.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
				if known {
					o.Services = []netip.Prefix{serviceCIDR}
				}
				g := newGuarded(t, o, tr.plugin)
				for tag, of := range map[string]map[bool]netip.Addr{friendTag: friend, enemyTag: enemy} {
					g.Add(tag)
					for _, a := range of {
						g.Route(a, tag)
					}
				}
				tr.prepare(g)
				g.Do(tr.service, toFriend, friend[false])
				g.Do(tr.service, toEnemy, enemy[false])
				for dst, want := range map[netip.Addr]string{toFriend: friendTag, toEnemy: enemyTag} {
					if left := g.toService(dst, 80); left != want {
						t.Fatalf("without policy: the packet to service %s leaves by %q, want %q", dst, left, want)
					}
				}
				sends := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Dst: api.PrefixNet(netip.PrefixFrom(friend[false], 32)), Protocol: api.TCP, DstPort: api.Port(8080)}, {Action: api.Deny}}, nil)
				g.commit(func(changes *renderer.Changes) {
					renderPod(changes, "pod", podAddress, nil, sends)
					renderPod(changes, "friend", friend, nil, nil)
					renderPod(changes, "enemy", enemy, nil, nil)
				})
				for _, tt := range []struct {
					what string
					dst  netip.Addr
					port uint16
					want string
				}{
					{"the permitted pod", friend[false], 8080, friendTag},
					{"the permitted pod at another port", friend[false], 80, ""},
					{"a pod that is not permitted", enemy[false], 8080, ""},
					{"the service of the permitted pod", toFriend, 80, map[bool]string{true: friendTag}[known]},
					{"the service of the other pod", toEnemy, 80, ""},
					{"a service that is none", toFriend, 81, ""},
				} {
					if left := g.toService(tt.dst, tt.port); left != tt.want {
						t.Errorf("services known %t: a packet to %s leaves by %q, want %q", known, tt.what, left, tt.want)
					}
				}
				if logged := strings.Contains(log.String(), "set --service-cidr"); logged == known {
					t.Errorf("services known %t: the log says %t that they are not:\n%s", known, logged, log.String())
				}
			}
		})
	}
}
